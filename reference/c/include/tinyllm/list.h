/* An intrusive list: its links lie inside the things that are listed, so nothing is allocated.

       typedef struct { int name; tl_link link; } thing;

       tl_list list;
       tl_list_init(&list);
       tl_list_append(&list, &some->link);
       thing *first = TL_CONTAINER(tl_list_first(&list), thing, link); */
#ifndef TINYLLM_LIST_H
#define TINYLLM_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* A link of zeros is in no list. */
typedef struct tl_link {
    struct tl_link *before, *after;
} tl_link;

/* A ring through `ends`: its `after` is the first link, its `before` the last one. */
typedef struct {
    tl_link ends;
} tl_list;

/* The thing of type `type` whose member `member` is the link. */
#define TL_CONTAINER(link, type, member) ((type *)(void *)((char *)(link) - offsetof(type, member)))

/* Make a list empty. It must stay where it is: its links point at it. */
void tl_list_init(tl_list *list);

/* Append a link that is in no list. */
void tl_list_append(tl_list *list, tl_link *link);

/* Take a link out of whichever list it is in; it is in no list after that. */
void tl_list_remove(tl_link *link);

/* The first link, NULL in an empty list. */
tl_link *tl_list_first(const tl_list *list);

/* Whether a link is in a list. */
bool tl_list_has(const tl_link *link);

#endif
