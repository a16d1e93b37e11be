#include "tinyllm/list.h"

void tl_list_init(tl_list *list) {
    list->ends.before = list->ends.after = &list->ends;
}

void tl_list_append(tl_list *list, tl_link *link) {
    link->before = list->ends.before;
    link->after = &list->ends;
    link->before->after = link;
    list->ends.before = link;
}

void tl_list_remove(tl_link *link) {
    link->before->after = link->after;
    link->after->before = link->before;
    link->before = link->after = NULL;
}

tl_link *tl_list_first(const tl_list *list) {
    return list->ends.after == &list->ends ? NULL : list->ends.after;
}

bool tl_list_has(const tl_link *link) {
    return link->after != NULL;
}
