"""Search over models, tasks, suites, papers and recipes by any of their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import Field

from harness.core.groups import group_by
from harness.plan import catalog
from harness.results.scores import score_text
from leaderboard.data.backbones import find_backbone, load_backbones
from leaderboard.data.entries import compute_precedence, extract_letters
from leaderboard.data.queries import Queries
from leaderboard.views.cells import format_count
from leaderboard.views.reproductions import join_models
from leaderboard.views.task_scores import find_asked_scores, format_task_path, list_site_tasks
from leaderboard.web.page import Moved, Page
from leaderboard.web.page_state import State, Text, build_address, build_paging
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.table_formats import format_parameters
from leaderboard.web.tables import link, values_table

KINDS = ("backbone", "model", "suite", "task", "recipe", "paper")
"""The kinds of hits; of hits that match alike the earlier kind goes first."""


class _SearchState(State):
    """What the search takes."""

    q: Text = Field(
        "", description="Parts of a name; or a part of a model's name and the whole name of a task."
    )
    kind: Literal["", "backbone", "model", "suite", "task", "recipe", "paper"] = Field(
        "", description="Only hits of this kind."
    )
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Hits on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of hits.")


@dataclass(frozen=True)
class _Item:
    """Something with a page: its kind, name, path, other names, and what it is."""

    kind: str
    name: str
    href: str
    aliases: Sequence[str] = ()
    what: str = ""

    @cached_property
    def _names(self) -> list[tuple[str, str, str]]:
        """Each name by its letters, and by those without its organisation."""
        return [
            (extract_letters(n), extract_letters(n.rpartition("/")[2]), n) for n in (self.name, *self.aliases)
        ]

    def match(self, words: Sequence[str]) -> tuple[int, int, str] | None:
        """How well it matches: 0 for a whole name, 1 for its beginning, 2 for a part; and by which name."""
        # Without spaces, as names are compared by their letters and digits alone.
        query, matches = "".join(words), []
        for position, (letters, short_letters, name) in enumerate(self._names):
            if all(word in letters for word in words):
                begins = letters.startswith(query) or short_letters.startswith(query)
                quality = 1 if begins else 2
                if query in (letters, short_letters):
                    quality = 0
                # All aliases are alike, and each is worth less than the name itself.
                matches.append((quality, min(position, 1), name))
        return min(matches, default=None)


def _make_items(site: Site) -> Iterator[_Item]:
    """Everything that has a page of its own."""
    queries = site.queries
    measured = map(queries.entries.__getitem__, queries.measured_facts)
    of_backbones = group_by(measured, lambda entry: getattr(find_backbone(entry.model), "slug", ""))
    for backbone in load_backbones().values():
        others = queries.list_other_names(of_backbones.get(backbone.slug, ()))
        aliases = sorted({backbone.family, *backbone.aliases, *others} - {"", backbone.name})
        what = f"{format_parameters(backbone.parameters)} parameters" if backbone.parameters else ""
        yield _Item("backbone", backbone.name, f"/models/{backbone.slug}", aliases, what)
    for slug, entries in queries.models.items():
        if find_backbone(entries[0].model) is None:
            size = max((entry.parameters or 0 for entry in entries), default=0)
            facts = [f"{format_parameters(size)} parameters"] if size else []
            what = ", ".join([*facts, *sorted({entry.origin for entry in entries})])
            yield _Item("model", entries[0].model, f"/models/{slug}", queries.list_other_names(entries), what)
    for slug, site_suite in queries.suites.items():
        what = f"{len(site_suite.suite.columns)} tasks"
        yield _Item("suite", site_suite.suite.title, f"/suites/{slug}", [site_suite.typed], what)
    glue = {task.name for task in queries.suites["glue"].suite.tasks} if "glue" in queries.suites else ()
    for task in list_site_tasks(queries):
        kind, _, count = queries.tasks.get(task, ("", "", 0))
        href, what = format_task_path(task), f"{kind}, {count} results".removeprefix(", ")
        if task in glue:
            href = build_address("/glue", {"sort": f"-{task}"})
            what = "of GLUE: measured, and printed in papers"
        yield _Item("task", task, href, what=what)
    for recipe in catalog.load_recipe_entries().values():
        yield _Item("recipe", recipe.name, build_address(f"/recipes/{recipe.name}"), what=recipe.summary)
    for paper in site.papers.values():
        what = f"{paper.title} ({paper.year})"
        yield _Item("paper", paper.name, f"/papers/{paper.slug}", [paper.title], what)


def _search_items(site: Site, query: str, kind: str = "") -> list[tuple[_Item, str]]:
    """What a query finds, each with the name that matched: whole names first, then beginnings, then parts."""
    words = [letters for word in query.split() if (letters := extract_letters(word))]
    if query.strip() and not words:
        return []
    items: list[_Item] = site.queries.known.get("items") or list(_make_items(site))
    site.queries.known["items"] = items
    hits = _match_items(items, words, [kind] if kind else KINDS)
    if len(words) > 1 and not kind:
        hits = hits or [(one, one.name) for one in _find_results(site.queries, items, words)]
        # A model or paper and a suite have no name in common: both are found.
        suites = [
            w for w in words if w in {extract_letters(n) for _, n in _match_items(items, [w], ["suite"])}
        ]
        others = [word for word in words if word not in suites]
        more = _match_items(items, others, ("backbone", "model", "paper")) if suites and others else []
        more += _match_items(items, suites, ["suite"]) if more else []
        hits += [hit for hit in more if hit not in hits]
    return hits


def _match_items(
    items: Sequence[_Item], words: Sequence[str], kinds: Sequence[str]
) -> list[tuple[_Item, str]]:
    """The items of some kinds that have all words, each with the name that matched, the best first."""
    hits = [(*match, one) for one in items if one.kind in kinds and (match := one.match(words)) is not None]
    if words:
        hits.sort(key=lambda hit: (hit[0], KINDS.index(hit[3].kind), hit[1], len(hit[3].name), hit[3].name))
    return [(one, name) for *_, name, one in hits]


def _find_results(queries: Queries, items: Sequence[_Item], words: Sequence[str]) -> Iterator[_Item]:
    """The results of models on a task, of the task's whole name and a part of theirs in either order.

    Where the part is the whole name of some models, the results are theirs alone.
    """
    pages = join_models(queries)

    def find_models(part: Sequence[str]) -> set[str]:
        matches = [(one, one.match(part)) for one in items if one.kind in ("backbone", "model")]
        named = [(one.href.rpartition("/")[2], match[0]) for one, match in matches if match]
        slugs = {slug for slug, quality in named if not quality} or {slug for slug, _ in named}
        # Of a model with several names each has a page of its own in the list.
        return slugs | {pages[entry.id] for slug in slugs for entry in queries.models.get(slug, ())}

    for cut in range(1, len(words)):
        for name, task in ((words[:cut], words[cut:]), (words[cut:], words[:cut])):
            matches = ((one.name, one.match(task)) for one in items if one.kind == "task")
            tasks = [whole for whole, match in matches if match and not match[0]]
            models = find_models(name) if tasks else set[str]()
            numbers = [number for number, slug in pages.items() if slug in models]
            rows = queries.find_results(entry=numbers, task=tasks) if tasks and numbers else []
            rows.sort(key=lambda row: compute_precedence(queries.entries[row.entry]), reverse=True)
            scores = find_asked_scores(queries, rows[0].task, [row.id for row in rows]) if rows else {}
            for row in rows:
                entry, value = queries.entries[row.entry], scores.get(row.id, row.value)
                if not entry.member:
                    score = "" if value is None else f", {score_text(value)}"
                    yield _Item("result", f"{entry.model} on {row.task}", f"/results/{row.id}",
                                what=f"{entry.origin}{score}")  # fmt: skip


@serve_page("/search", "Models, tasks, suites, papers and recipes by a part of any of their names.")
def _show_search(site: Site, state: _SearchState) -> Page:
    hits = _search_items(site, state.q, state.kind)
    # A whole name of one thing leads there; the other formats, which have all rows, list it.
    if len(hits) == 1 and "rows" not in state.model_fields_set:
        [(item, name)] = hits
        if extract_letters(state.q) in map(extract_letters, (name, name.rpartition("/")[2])):
            raise Moved(item.href)
    where = build_paging(len(hits), state, "/search")
    # As a plain file it is searched by the browser, in every name.
    rows = [
        (link(one.name, one.href), one.kind,
         " · ".join(one.aliases) if site.plain else name if name != one.name and state.q else "", one.what)
        for one, name in where.cut(hits)
    ]  # fmt: skip
    names = "Also called" if site.plain else "Matched name"
    labels = {"name": "Name", "kind": "Kind", "matched": names, "what": "What it is"}
    caption = format_count(len(hits), "hit")
    return Page(
        title=f"Search: {state.q}" if state.q else "Models, tasks and papers by name",
        tables=[values_table("hits", caption, labels, rows)],
        context={"state": state, "kinds": [("", "any"), *zip(KINDS, KINDS, strict=True)], "paging": where},
    )
