# The front door. Every target is one line that calls the program; `make` alone lists them.
# M= names modules, K= one test, ARGS= anything else: make check M=kv_pool K=alloc_is_all_or_nothing
OL = @sh grader/run

help:      ## this list
	@awk -F ':  *## ' '/^[a-z-]+:/ { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

start:     ## the environment, your files in work/, the first check, and what to do next
	$(OL) start $(M) $(ARGS)

check:     ## judge your work (M=module, K=test)
	$(OL) check $(M) $(if $(K),-k $(K)) $(ARGS)

tdd-red:   ## your own tests of a module must fail on the stub (M=module)
	$(OL) tdd red $(M) $(ARGS)

tdd-green: ## and pass on your code (M=module)
	$(OL) tdd green $(M) $(ARGS)

mutation:  ## grade your own tests by the bugs that they catch (M=module)
	$(OL) mutation $(M) $(ARGS)

tests:     ## what will be judged, and why
	$(OL) tests $(M) $(ARGS)

bench:     ## measure your prefix cache beside the reference (ARGS=--assert)
	$(OL) bench $(M) $(ARGS)

demo:      ## watch your modules serve requests in an engine
	$(OL) demo $(M) $(ARGS)

simulate:  ## run traces through a server's memory (M=preset:chat or files, ARGS="--html FILE")
	$(OL) simulate $(M) $(ARGS)

diff:      ## your code beside the reference, once it has passed (M=module)
	$(OL) diff $(M) $(ARGS)

progress:  ## where you are in the course
	$(OL) progress $(ARGS)

reset:     ## back to the stub; your file is kept in a snapshot (M=module)
	$(OL) reset $(M) $(ARGS)

undo:      ## take back the last reset or undo (ARGS=NUMBER: another snapshot)
	$(OL) undo $(ARGS)

doctor:    ## look at this machine and this checkout
	$(OL) doctor $(ARGS)

test:      ## prove the whole kit (for authors)
	$(OL) --kit -m pytest tests/kit $(ARGS)

write:     ## make the stubs and the chapters' tables anew (for authors)
	$(OL) author write $(ARGS)

kills:     ## write down anew what each planted bug fails (for authors; M=module)
	$(OL) author kills $(M) $(ARGS)

gates:     ## hold the course to its gates (for authors; M=module)
	$(OL) author check $(M) $(ARGS)

fuzz:      ## random calls on the pool in C, for a minute (for authors)
	$(OL) --kit -m tests.kit.fuzz $(ARGS)

bench-kit: ## measure the kit (for authors)
	$(OL) --kit -m tests.kit.bench $(ARGS)

.PHONY: help start check tdd-red tdd-green mutation tests bench demo simulate diff progress reset undo doctor test write kills gates fuzz bench-kit
.DEFAULT_GOAL := help
