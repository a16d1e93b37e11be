"""What the report of `ol simulate` shows of all parts' results: sections, texts, tables, charts,
and the facts for programs."""

from collections.abc import Iterator
from functools import reduce
from operator import getitem
from typing import Any

from tests.simulator.wish import PRESET, Plan, Trace
from tests.simulator.words import counted, duration, listed, memory, percent
from tinyllm.cache_replay import BLOCK_HIT_RATE, TOKEN_HIT_RATE
from tinyllm.eviction import POLICIES
from tinyllm.simulation import FIGURES, NO_CACHE, Memory

Result = dict[str, Any]
_SHARES = tuple(Memory._fields)


def report(results: list[Result]) -> Iterator[Result]:
    """Return the figures of the report, trace by trace, each with its kind."""
    for name in dict.fromkeys(r["trace"]["name"] for r in results):
        mine = [r for r in results if r["trace"]["name"] == name]
        yield from _Section(mine).figures()
    yield {"kind": "table", "title": "What the figures mean", "words": True, "page": True,
           "head": ["Figure", "Unit", "What it means"],
           "rows": [*FIGURES, ("hit rate by pool size, by policy and by turn: blocks", "",
                               BLOCK_HIT_RATE), ("the same: tokens", "", TOKEN_HIT_RATE)]}


class _Section:
    """The report of one trace."""

    def __init__(self, results: list[Result]) -> None:
        self.trace = Trace(**results[0]["trace"])
        self.plan = Plan(**results[0]["plan"])
        by_role: dict[str, list[Result]] = {}
        for result in results:
            role = f"{result['do']} {result.get('role', '')}".strip()
            by_role.setdefault(role, []).append(result)
        self.schemes = by_role.get("serve scheme", [])
        self.crowds = {r["label"]: r["figures"] for r in by_role.get("serve crowd", [])}
        self.preemptions = by_role.get("serve preemption", [])
        self.pools = by_role.get("serve pool", [])
        self.policies = sorted(by_role.get("cache policy", []),
                               key=lambda r: POLICIES.index(r["policy"]))
        self.sizes = by_role.get("serve size", [])
        self.size_hits = {r["block_tokens"]: r["replays"][0] for r in by_role.get("cache size", [])}

    def figures(self) -> Iterator[Result]:
        yield {"kind": "section", "title": self._title()}
        yield {"kind": "text", "text": self._server()}
        for text in (self._passed_over(), *self._too_slow(), *self._refusals(), self._gained()):
            if text:
                yield {"kind": "text", "text": text}
        for part in (self._schemes, self._pool_sizes, self._cache, self._turns, self._preemption,
                     self._block_sizes, self._more):
            yield from part()
        yield {"kind": "facts", "facts": self._facts()}

    def _title(self) -> str:
        trace = self.trace
        if trace.format == "made":
            return (f"{trace.name.removeprefix(PRESET)}: "
                    f"{counted(trace.n_requests, 'request')} made up "
                    f"from seed {trace.seed}")
        return f"{trace.name.rsplit('/', 1)[-1]}: {counted(trace.n_requests, 'request')}"

    def _server(self) -> str:
        trace, plan, n = self.trace, self.plan, self.trace.n_requests
        cost = plan.cost
        prompt = counted(round(trace.prompt_tokens / n), "token")
        return (f"Prompts have {prompt} in the mean, outputs "
                f"{trace.output_tokens / n:,.0f}; {self._arrivals()}. "
                f"The server has {counted(plan.n_blocks, 'block')} of "
                f"{counted(plan.block_tokens, 'token')} ({memory(plan.gib())} at "
                f"{plan.kv_kib:g} KiB a token{self._enlarged()}); a step takes "
                f"{cost['step_us']:,} us and {cost['token_us']} us for each position that it "
                f"computes; slots are of {counted(plan.max_len, 'token')}, and at most "
                f"{counted(plan.max_running, 'request runs', 'requests run')}.")

    def _arrivals(self) -> str:
        trace = self.trace
        if trace.last_us == trace.first_us:
            return "it arrives at once" if trace.n_requests == 1 else "all arrive at once"
        return f"arrivals go on for {duration(trace.last_us - trace.first_us)}"

    def _enlarged(self) -> str:
        """Say why a pool that nobody asked for is as large as it is."""
        if not self.plan.enlarged:
            return ""
        return f", four times what the longest request needs, {self.trace.longest:,} tokens"

    def _passed_over(self) -> str:
        skipped = self.trace.skipped
        were = counted(skipped, "line was", "lines were")
        return f"{were} passed over. The first: {self.trace.first_bad}." if skipped else ""

    def _too_slow(self) -> Iterator[str]:
        """Say where no memory would help: computing alone takes longer than requests come for."""
        span = self.trace.last_us - self.trace.first_us
        work = {r["label"]: self.plan.cost["token_us"] * self._least(r)
                for r in self.schemes if not r["figures"]["refused"]}
        slow = {label: us for label, us in work.items() if us > span > 0}
        if not slow:
            return
        where, there = "", "it"
        if len(slow) < len(work):
            where, there = f" under {listed(list(slow))}", "there it"
        done = min(r["figures"]["end_us"] for r in self.schemes if r["label"] in slow)
        yield (f"Arrivals end after {duration(span)}, and the server needs "
               f"{duration(min(slow.values()))} or more for nothing but computing{where}: {there} "
               f"is too slow for this trace, whatever its memory, and done at {duration(done)} at "
               "the earliest. Times to the first token tell how far it has fallen behind, and "
               "would grow with the trace.")

    def _least(self, result: Result) -> float:
        """Return how many positions a server computes at least, whatever its memory: with a cache
        those that one without end would not find."""
        figures, trace = result["figures"], self.trace
        computed = float(figures["computed_tokens"] - figures["recomputed_tokens"])
        for replay in self._replays() if "cache" in result["label"] else ():
            if replay["blocks"] is None:
                missed = (1 - replay["token_hit_rate"]) * trace.prompt_tokens
                computed = min(computed, missed + trace.output_tokens - trace.n_requests)
        return computed

    def _refusals(self) -> Iterator[str]:
        """Say how many requests each scheme refuses, and why."""
        plan = self.plan
        for r in self.schemes:
            if not (n := r["figures"]["refused"]):
                continue
            largest = 1 << (plan.n_blocks * plan.block_tokens).bit_length() - 1
            if r["label"] == "slot" and plan.max_len <= largest:
                why = ("it is" if n == 1 else "they are") + (
                    f" longer than a slot, {counted(plan.max_len, 'token')}")
            else:
                why = (f"no piece of the memory is large enough, the largest has "
                       f"{counted(largest, 'slot')}")
            yield (f"{counted(n, 'request has', 'requests have')} no room under {r['label']}, even "
                   f"when nobody else is there: {why}.")

    def _gained(self) -> str:
        """Say what pages buy."""
        if (gain := self._gain()) is None:
            refuse = [r["label"] for r in self.schemes
                      if r["label"] in ("slot", "paged") and r["figures"]["refused"]]
            if not refuse or not {"slot", "paged"} <= self.crowds.keys():
                return ""
            return ("What pages gain over slots is not told: they would have to serve the same "
                    "requests.")
        return (f"In the same memory pages hold {gain['crowd']:.1f} times as many requests as "
                f"slots when everybody is there from the start, in the mean "
                f"({self.crowds['paged']['mean_running']:.1f} to "
                f"{self.crowds['slot']['mean_running']:.1f}). On the trace itself it is "
                f"{gain['peak']:.1f} times at the peaks, and {gain['mean']:.1f} in the mean "
                f"over the busy time.")

    def _gain(self) -> dict[str, float] | None:
        by = {r["label"]: r["figures"] for r in self.schemes}
        if "slot" not in by or "paged" not in by or not by["slot"]["peak_running"]:
            return None
        if by["slot"]["refused"] or by["paged"]["refused"]:
            return None
        crowd = self.crowds["paged"]["mean_running"] / self.crowds["slot"]["mean_running"]
        return {"crowd": crowd, **{
            name: by["paged"][f"{name}_running"] / by["slot"][f"{name}_running"]
            for name in ("peak", "mean")}}

    def _schemes(self) -> Iterator[Result]:
        if not self.schemes:
            return
        yield {"kind": "table", "title": "The same memory, given away differently",
               "head": ["", "peak", "mean", "TTFT", "TTFT 99 %", "queueing", "tokens/s",
                        "preempted", "waste", "hits"],
               "rows": [self._row(r) for r in self.schemes]}
        yield {"kind": "text", "text": "peak and mean: requests that run at one time. TTFT and "
               "queueing are medians; one request in a hundred waits longer than TTFT 99 %. waste: "
               "positions computed again, of all computed. hits: blocks found at admission, "
               "of the whole named blocks of the prompts."}
        if self.plan.policy == "belady" and self.trace.names:
            yield {"kind": "text", "text": "No server has belady, which must know the future: so "
                   "no row has a cache. Caches alone, below, can be compared with it."}
        yield self._concurrency()
        for label in ("slot", "paged"):
            if found := [r for r in self.schemes if r["label"] == label]:
                yield self._memory(found[0])
        pressed = [r for r in self.schemes if sum(r["figures"]["pressed_shares"].values())]
        if pressed:
            yield {"kind": "table", "title": "Where the memory is while requests wait for it",
                   "head": ["", *_SHARES[:5]],
                   "rows": [[r["label"], *(percent(r["figures"]["pressed_shares"][s])
                                           for s in _SHARES[:5])] for r in pressed]}
            yield {"kind": "chart", "id": "shares", "form": "bars", "percent": True, "most": 1.0,
                   "title": "Where the memory is while requests wait for it",
                   "says": "Each bar is the whole memory over the time under pressure: only then "
                           "is what is not used a waste.",
                   "x": "scheme", "y": "share of the memory",
                   "categories": [r["label"] for r in pressed],
                   "series": [{"name": s, "values": [r["figures"]["pressed_shares"][s]
                                                     for r in pressed]} for s in _SHARES[:5]]}

    def _row(self, result: Result) -> list[str]:
        f = result["figures"]
        hits = percent(f["block_hit_rate"]) if "cache" in result["label"] else "–"
        if not f["ttft_us"]:
            nobody = "none fits" if f["refused"] == f["requests"] else "none runs"
            return [result["label"], nobody, *["–"] * 8]
        return [result["label"], f"{f['peak_running']}", f"{f['mean_running']:.1f}",
                duration(f["ttft_us"]["median"]), duration(f["ttft_us"]["p99"]),
                duration(f["queue_us"]["median"]), f"{f['output_rate']:,.0f}",
                f"{f['preemptions']:,}", percent(f["waste"]), hits]

    def _concurrency(self) -> Result:
        return {"kind": "chart", "id": "concurrency", "form": "lines", "steps": True,
                "title": "Requests that run at one time",
                "says": "Samples at equal distances; a server that falls behind goes on after the "
                        "last arrival.",
                "x": "seconds", "y": "requests",
                "series": [{"name": r["label"], "points": [[s[0] / 1e6, s[1]] for s in
                                                           _thin(r["figures"]["samples"])]}
                           for r in self.schemes]}

    def _memory(self, result: Result) -> Result:
        samples = _thin(result["figures"]["samples"])
        whole = self.plan.n_blocks * self.plan.block_tokens
        return {"kind": "chart", "id": f"memory-{result['label']}", "form": "areas",
                "percent": True, "most": 1.0,
                "title": f"Where the memory is, {result['label']}",
                "says": "Token states are what the memory is for. External is what is lost between "
                        "requests; while nobody waits, free memory is idle.",
                "x": "seconds", "y": "share of the memory",
                "series": [{"name": name, "points": [[s[0] / 1e6, s[3 + at] / whole]
                                                     for s in samples]}
                           for at, name in enumerate(_SHARES)]}

    def _pool_sizes(self) -> Iterator[Result]:
        """Show what other sizes of the pool do for a server with pages."""
        if not self.pools:
            return
        cache = self.pools[0]["server"]["cache"]
        what = "pages" if cache == NO_CACHE else f"pages, cache {cache}"
        rows = [(r["server"]["n_blocks"], r["figures"]) for r in self.pools]
        yield {"kind": "table", "title": f"Other sizes of the pool ({what})",
               "head": ["blocks", "memory", "refused", "peak", "TTFT", "TTFT 99 %", "preempted",
                        "waste", "tokens/s"],
               "rows": [[f"{n:,}", memory(self.plan.gib(n)), f"{f['refused']:,}",
                         f"{f['peak_running']}", *(duration(f["ttft_us"][k]) if f["ttft_us"]
                                                   else "–" for k in ("median", "p99")),
                         f"{f['preemptions']:,}", percent(f["waste"]), f"{f['output_rate']:,.0f}"]
                        for n, f in rows]}
        told = [(n, f) for n, f in rows if f["ttft_us"]]

        def line(name: str, *path: str, unit: float = 1) -> Result:
            return {"name": name,
                    "points": [[n, reduce(getitem, path, f) / unit] for n, f in told]}

        for id_, title, y, series in (
                ("pool-ttft", "Time to the first token by size of the pool", "seconds",
                 [line("median", "ttft_us", "median", unit=1e6),
                  line("99 %", "ttft_us", "p99", unit=1e6)]),
                ("pool-work", "Requests that run, and preemptions, by size of the pool", "number",
                 [line("peak", "peak_running"), line("preemptions", "preemptions")]),
                ("pool-rate", "Output by size of the pool", "tokens/s",
                 [line("tokens/s", "output_rate")])):
            yield {"kind": "chart", "id": id_, "form": "lines", "log_x": True, "dots": True,
                   "title": title, "says": f"The whole trace at each size ({what}).",
                   "x": f"blocks of {counted(self.plan.block_tokens, 'token')}", "y": y,
                   "series": series}

    def _cache(self) -> Iterator[Result]:
        if not self.policies:
            if not self.trace.names:
                yield {"kind": "text", "text": "The trace names no blocks, so there are no hits."}
            return
        if self.trace.huge(self.plan.block_tokens):
            yield {"kind": "text", "text": "The trace asks for so many blocks that neither belady "
                   "nor a cache without end is tried: both must remember all of them."}
        sizes = [r["blocks"] for r in self.policies[0]["replays"]]
        yield {"kind": "table", "title": "Block hit rate by size of the cache",
               "head": ["blocks", *(r["policy"] for r in self.policies)],
               "rows": [["without end" if n is None else f"{n:,}",
                         *(f"{r['replays'][at]['block_hit_rate']:.3f}" for r in self.policies)]
                        for at, n in enumerate(sizes)]}
        yield {"kind": "text", "text": "Block hit rate: " + BLOCK_HIT_RATE}
        yield {"kind": "chart", "id": "hits", "form": "lines", "log_x": True, "dots": True,
               "percent": True,
               "title": "Block hit rate by size of the cache",
               "says": "Requests one after another. No policy can be above belady, which knows the "
                       "future.",
               "x": f"blocks of {counted(self.plan.block_tokens, 'token')}", "y": "blocks found",
               "series": [{"name": r["policy"],
                           "points": [[x["blocks"], x["block_hit_rate"]] for x in r["replays"]
                                      if x["blocks"]]} for r in self.policies]}

    def _chosen(self) -> Result | None:
        """Return the replay of the policy that was asked for, at the pool's size."""
        return next((x for x in self._replays() if x["blocks"] == self.plan.n_blocks), None)

    def _replays(self) -> list[Result]:
        return [x for r in self.policies if r["policy"] == self.plan.policy for x in r["replays"]]

    def _turns(self) -> Iterator[Result]:
        chosen = self._chosen()
        turns = [t for t in (chosen or {}).get("turns", []) if t[0] > 0 and t[1] >= 5]
        if not chosen or len(turns) < 2:
            return
        what = f"{self.plan.policy}, {counted(self.plan.n_blocks, 'block')}"
        yield {"kind": "table", "title": f"Hit rate by turn of the session ({what})",
               "head": ["turn", "prompts", "blocks", "tokens"],
               "rows": [[f"{t}", f"{n:,}", f"{b:.3f}", f"{k:.3f}"] for t, n, b, k in turns[:12]]}
        yield {"kind": "chart", "id": "turns", "form": "lines", "dots": True, "percent": True,
               "most": 1.0,
               "title": f"Hit rate by turn of the session ({what})",
               "says": "Turns with at least 5 prompts. The first turn finds shared instructions at "
                       "most; a later one finds what the session said before.",
               "x": "turn", "y": "found",
               "series": [{"name": name, "points": [[t[0], t[at]] for t in turns]}
                          for name, at in (("blocks", 2), ("tokens", 3))]}

    def _preemption(self) -> Iterator[Result]:
        happened = [r for r in self.preemptions if r["figures"]["preemptions"]]
        if not happened:
            if self.preemptions:
                yield {"kind": "text", "text": "With pages nobody was ever preempted."}
            return
        yield {"kind": "table", "title": "Whom to preempt, and how (pages, no cache)",
               "head": ["", "preempted", "recomputed", "waste", "swapped", "TTFT", "tokens/s"],
               "rows": [[r["label"], f"{f['preemptions']:,}", f"{f['recomputed_tokens']:,}",
                         percent(f["waste"]), f"{f['swapped_tokens']:,}",
                         duration(f["ttft_us"]["median"]), f"{f['output_rate']:,.0f}"]
                        for r in happened for f in (r["figures"],)]}
        again = [r for r in happened if r["label"].endswith("recompute")]
        yield {"kind": "chart", "id": "waste", "form": "bars", "percent": True,
               "title": "Wasted work by preemption policy (recompute)",
               "says": "Positions computed again over all positions computed.",
               "x": "victim", "y": "wasted work",
               "categories": [r["label"].split(",")[0] for r in again],
               "series": [{"name": "recomputed", "values": [r["figures"]["waste"] for r in again]}]}

    def _block_sizes(self) -> Iterator[Result]:
        rows = [[r["label"], f"{f['peak_running']}", percent(f["shares"]["internal"]),
                 f"{self.size_hits[size]['block_hit_rate']:.3f}" if size in self.size_hits else "–"]
                for r in self.sizes for f in (r["figures"],)
                for size in (r["server"]["block_tokens"],)]
        if rows:
            yield {"kind": "table", "title": "Other sizes of block, in the same memory",
                   "head": ["", "peak", "internal", "block hit rate"], "rows": rows}

    def _more(self) -> Iterator[Result]:
        """Say what was not compared, where nobody said what should be."""
        left = [word for word in self.plan.left if self.trace.names or word not in POLICIES]
        if left:
            yield {"kind": "text", "text": f"There is more to compare: {listed(left)}. "
                   "`--compare all` does all of it and takes several times as long; "
                   "`--compare slot,oracle,paged` only what it names."}

    def _facts(self) -> Result:
        chosen = self._chosen() or {}
        trace, plan = self.trace, self.plan
        return {
            "trace": trace.name, "format": trace.format, "requests": trace.n_requests,
            "skipped": trace.skipped, "prompt_tokens": trace.prompt_tokens,
            "output_tokens": trace.output_tokens, "block_tokens": plan.block_tokens,
            "blocks": plan.n_blocks, "gib": plan.gib(), "policy": plan.policy,
            "config": self._config(),
            "block_hit_rate": chosen.get("block_hit_rate"),
            "token_hit_rate": chosen.get("token_hit_rate"),
            "by_turn": [{"turn": t, "prompts": n, "block_hit_rate": b, "token_hit_rate": k}
                        for t, n, b, k in chosen.get("turns", [])],
            "gain": self._gain(),
            "schemes": [_fact(r) for r in self.schemes],
            "pools": [{**_fact(r), "blocks": r["server"]["n_blocks"]} for r in self.pools],
            "preemption": [_fact(r) for r in self.preemptions],
            "block_sizes": [{**_fact(r), "hits": self.size_hits.get(r["server"]["block_tokens"])}
                            for r in self.sizes],
            "policies": {r["policy"]: [{k: x[k] for k in ("blocks", "block_hit_rate",
                                                          "token_hit_rate", "evictions")}
                                       for x in r["replays"]] for r in self.policies},
            "definitions": {"block_hit_rate": BLOCK_HIT_RATE, "token_hit_rate": TOKEN_HIT_RATE,
                            **{name: says for name, _, says in FIGURES}},
        }

    def _config(self) -> Result:
        """Return all that was set: with it and the trace the same report can be made again."""
        plan, trace = self.plan, self.trace
        made = {"requests": trace.n_requests, "seed": trace.seed} if trace.format == "made" else {}
        return {"block_tokens": plan.block_tokens, "blocks": plan.n_blocks,
                "max_len": plan.max_len, "max_running": plan.max_running, "victim": plan.victim,
                "preemption": plan.preemption, "policy": plan.policy, "kv_kib": plan.kv_kib,
                "skip_bad": trace.skip_bad, "block_size": trace.block_size, **plan.cost, **made}


def _fact(result: Result) -> Result:
    figures = {k: v for k, v in result["figures"].items() if k != "samples"}
    return {"label": result["label"], **figures}


def _thin(samples: list[Any]) -> list[Any]:  # at most some four hundred, at equal distances
    return samples[:: max(1, len(samples) // 400)]
