"""Who keeps what in the next view: cases by name, and properties over anything that members may say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.membership.assign import assign
from folkmoot.membership.divergence import YES, includes
from folkmoot.membership.holding import COMPLETE, DAMAGED, NONE, PARTIAL, Holding
from folkmoot.membership.ring import Ring
from folkmoot.membership.view import View
from folkmoot.membership.view_format import decode_view, encode_view
from folkmoot.peer.member import ACTIVE, LEAVING, Member

IDS = ["a", "b", "c", "d", "e"]


def members_of(ids: list[str], leaving: str = "") -> list[Member]:
    return [Member(one, 1, "", one, LEAVING if one in leaving else ACTIVE) for one in ids]


def at(seq: int, *epochs: tuple[int, int], state: int = COMPLETE) -> Holding:
    """A copy that is at `seq`, with this history of (epoch, base)."""
    return Holding(state, epochs[-1][0] if epochs else 0, seq, list(epochs))


class Case:
    """One partition among members a, b, c ...; the ideal is what the ring says, seen in `ideal`."""

    def __init__(self, ids: str, replicas: int = 3, leaving: str = "") -> None:
        self.members = members_of(list(ids), leaving)
        self.ring = Ring(View(9, self.members), 1, replicas)
        self.ideal = self.ring.replicas_of(0)
        self.holdings: dict[str, list[Holding]] = {}
        self.bases: dict[str, View] = {}
        self.filled: dict[str, list[tuple[int, str]]] = {}
        self.previous: View | None = None
        self.serving: list[str] | None = None
        self.branches: list[str] = []
        self.uncommitted_tails: list[tuple[str, int, int]] = []
        self.crowded: list[str] = []

    def view(self, epoch: int, ids: str, replicas: str, learners: str = "", known: str = "") -> View:
        """A view that those of `ids` who live have installed."""
        view = View(epoch, members_of(list(ids)), [list(replicas)], [list(learners)], list(known or ids))
        here = {member.node_id for member in self.members}
        self.bases.update({one: view for one in ids if one in here})
        if self.previous is None or epoch > self.previous.epoch:
            self.previous = view
        return view

    def hold(self, holding: Holding, ids: str) -> None:
        for one in ids:
            self.holdings[one] = [holding]

    def place(self) -> tuple[list[str], list[str]]:
        branches: dict[int, list[str]] = {}
        uncommitted_tails: dict[int, list[tuple[str, int, int]]] = {}
        replicas, learners = assign(
            self.members,
            self.ring,
            self.previous,
            self.holdings,
            self.bases,
            self.filled,
            branches,
            self.serving,
            self.crowded,
            uncommitted_tails,
        )
        self.branches = branches.get(0, [])
        self.uncommitted_tails = uncommitted_tails.get(0, [])
        return replicas[0], learners[0]


def test_where_nobody_holds_anything_all_begin_empty() -> None:
    case = Case("abcd")
    assert case.place() == (case.ideal, [])


def test_a_newcomer_learns_and_nobody_goes_before_it_is_complete() -> None:
    case = Case("abcd")
    out = next(one for one in "abcd" if one not in case.ideal)
    new = case.ideal[2]
    old = [one for one in "abcd" if one != new]
    case.view(1, "".join(old), "".join(old))
    case.hold(at(9, (1, 0)), "".join(old))
    replicas, learners = case.place()
    assert sorted(replicas) == sorted(old)
    assert learners == [new]
    assert out in replicas
    # It says that it has everything: that proves nothing, until the leader says so.
    case.holdings[new] = [at(9, (1, 0))]
    case.view(2, "abcd", "".join(replicas), new)
    assert case.place() == (replicas, learners)
    case.filled[replicas[0]] = [(0, new)]
    assert case.place() == (case.ideal, [])


def test_only_the_leader_can_report_a_learner() -> None:
    case = Case("abc")
    case.view(1, "abc", "ab", "c")
    case.hold(at(9, (1, 0)), "abc")
    case.filled["b"] = [(0, "c")]
    assert case.place()[1] == ["c"]


def test_a_report_counts_also_when_each_member_has_sent_the_view() -> None:
    for name in "ab":  # the proposer knows the one or the other
        case = Case("abd")
        view = case.view(2, "abd", "ab", "d")
        case.hold(at(9, (1, 0)), "abd")
        case.bases = {one: decode_view(encode_view(view)) for one in ("a", "b", "d", name)}
        case.filled["a"] = [(0, "d")]
        replicas, learners = case.place()
        assert (sorted(replicas), learners) == (["a", "b", "d"], [])


def test_when_the_leader_dies_the_next_leads() -> None:
    case = Case("bcd", replicas=2)
    case.view(1, "abcd", "abc")
    case.hold(at(9, (1, 0)), "bc")
    replicas, _learners = case.place()
    assert replicas[0] == (case.ideal[0] if case.ideal[0] in "bc" else "b")
    assert set(replicas) == {"b", "c"}


def test_one_that_was_left_behind_leads_nothing_even_if_it_says_more() -> None:
    case = Case("abc")
    case.view(1, "abc", "abc")
    case.view(2, "ab", "ab")
    case.hold(at(20, (1, 0), (2, 10)), "ab")
    case.hold(at(14, (1, 0)), "c")  # changes that nobody else took
    replicas, learners = case.place()
    assert sorted(replicas) == ["a", "b"]
    assert learners == ["c"]


def test_one_that_promised_a_view_and_did_not_see_it_is_in_sync() -> None:
    case = Case("abc")
    case.view(1, "abc", "abc")
    newer = case.view(2, "abc", "abc")
    case.bases = {"a": newer, "b": case.bases["b"], "c": case.view(1, "abc", "abc")}
    case.hold(at(20, (1, 0)), "abc")
    assert sorted(case.place()[0]) == ["a", "b", "c"]


def test_one_that_was_started_again_with_an_older_view_is_not() -> None:
    case = Case("abc")
    older = case.view(1, "abc", "abc")
    case.view(2, "abc", "abc")
    case.members[2] = Member("c", 2, "", "c", ACTIVE)
    case.bases["c"] = older
    case.hold(at(20, (1, 0)), "abc")
    replicas, learners = case.place()
    assert sorted(replicas) == ["a", "b"]
    assert learners == ["c"]


def test_started_again_with_the_newest_view_it_is() -> None:
    case = Case("abc")
    case.view(2, "abc", "abc")
    case.members[2] = Member("c", 2, "", "c", ACTIVE)
    case.hold(at(20, (1, 0)), "ab")
    case.hold(at(19, (1, 0)), "c")
    assert sorted(case.place()[0]) == ["a", "b", "c"]


def test_after_a_split_the_side_with_more_of_the_full_membership_leads() -> None:
    case = Case("abcde")
    case.view(5, "abc", "a", known="abcde")
    case.view(6, "de", "de", known="abcde")
    case.hold(at(20, (1, 0), (5, 10)), "a")
    case.hold(at(90, (1, 0), (6, 10)), "de")
    replicas, learners = case.place()
    assert replicas == ["a"]
    assert {"d", "e"} <= set(learners)


def test_a_side_that_wrote_nothing_loses_against_one_that_did() -> None:
    case = Case("abcde")
    case.view(5, "abc", "abc", known="abcde")
    case.view(6, "de", "de", known="abcde")
    case.hold(at(10, (1, 0)), "abc")
    case.hold(at(12, (1, 0), (6, 10)), "de")
    replicas, _learners = case.place()
    assert sorted(replicas) == ["d", "e"]


def test_ties_of_two_sides_go_to_the_lowest_id_of_the_membership() -> None:
    case = Case("abcd")
    case.view(5, "ab", "ab", known="abcd")
    case.view(6, "cd", "cd", known="abcd")
    case.hold(at(11, (1, 0), (5, 10)), "ab")
    case.hold(at(99, (1, 0), (6, 10)), "cd")
    replicas, learners = case.place()
    assert sorted(replicas) == ["a", "b"]
    assert sorted(learners) == ["c", "d"]


def test_the_other_side_of_a_split_is_a_branch() -> None:
    case = Case("abc")
    case.view(5, "ab", "ab", known="abc")
    case.view(6, "c", "c", known="abc")
    case.hold(at(20, (1, 0), (5, 10)), "ab")
    case.hold(at(12, (1, 0), (6, 11)), "c")
    assert case.place() == (sorted(case.place()[0]), ["c"])
    assert case.branches == ["c"]


def test_it_still_is_one_when_a_view_has_made_it_a_learner() -> None:
    case = Case("abc")
    case.view(7, "abc", "ab", "c")
    case.hold(at(20, (1, 0), (5, 10)), "ab")
    case.hold(at(12, (1, 0), (6, 11)), "c")
    case.place()
    assert case.branches == ["c"]


def test_what_was_told_to_nobody_stays_so_when_the_views_that_prove_it_are_gone() -> None:
    case = Case("abc")
    older = case.view(5, "abc", "abc")
    case.hold(at(20, (1, 0), (6, 17)), "a")
    case.hold(at(19, (1, 0), (5, 17)), "b")
    case.bases = {"a": older, "b": older}
    assert case.place()[0] == ["a"]
    assert case.branches == []
    assert case.uncommitted_tails == [("b", 5, 19)]
    newer = case.view(7, "abc", "a", "bc")
    assert case.place()[0] == ["a"]
    assert case.branches == ["b"], "it says only what it has installed"
    newer.uncommitted_tails = {0: [("b", 5, 19)]}
    case.place()
    assert (case.branches, case.uncommitted_tails) == ([], [("b", 5, 19)])
    case.hold(at(20, (1, 0), (5, 17)), "b")
    case.place()
    assert case.branches == ["b"], "this is not what was judged"


def test_who_began_apart_gives_way_however_old_and_far_its_branch_is() -> None:
    case = Case("abc")
    case.view(7, "ab", "ab").known = ["a", "b", "c"]
    case.view(9, "c", "c").minority_bootstrap = True
    case.hold(at(12, (7, 0)), "ab")
    case.hold(at(99, (3, 0), (9, 2)), "c")
    replicas, learners = case.place()
    assert (sorted(replicas), learners) == (["a", "b"], ["c"])
    assert case.branches == ["c"], "what it has is taken in"
    case.hold(Holding(NONE, 0, 0, []), "ab")
    assert case.place()[0][0] == "c", "nobody else has anything"


def test_a_copy_without_changes_of_its_own_is_none() -> None:
    case = Case("abc")
    case.view(5, "ab", "ab", known="abc")
    case.view(6, "c", "c", known="abc")
    case.hold(at(20, (1, 0), (5, 10)), "ab")
    case.hold(at(9, (1, 0)), "c")
    case.place()
    assert case.branches == []


def test_what_a_dead_leader_told_nobody_is_none() -> None:
    for history in ([(1, 0)], [(1, 0), (2, 10)]):
        case = Case("abc")
        older = case.view(history[-1][0], "abc", "abc")
        case.view(5, "ab", "ab", known="abc")
        case.bases["c"] = older
        case.members[2] = Member("c", 2, "", "c", ACTIVE)
        case.serving = ["a", "b"]
        case.hold(at(20, (1, 0), (5, 10)), "ab")
        case.hold(at(12, *history), "c")
        case.place()
        assert case.branches == []


def test_a_copy_from_before_goes_before_what_was_begun_without_it() -> None:
    case = Case("abc")
    case.view(5, "ab", "ab", known="abc")
    case.bases["c"] = View(4, members_of(["c"]), [["c"]], [[]], ["a", "b", "c"])
    case.serving = ["a", "b"]
    case.hold(at(900, (5, 0)), "ab")
    case.hold(at(12, (1, 0), (4, 10)), "c")
    replicas, learners = case.place()
    assert replicas == ["c"]
    assert sorted(learners) == ["a", "b"]
    assert sorted(case.branches) == ["a", "b"]


def test_a_side_that_goes_on_from_an_old_copy_gives_way_to_one_that_has_what_it_lacked() -> None:
    """Otherwise offsets of streams that readers have seen in view 4 would get other records (A9)."""
    case = Case("abc")
    case.view(5, "ab", "ab", known="abcde").losses.missing[0] = ["c", "d", "e"]
    case.view(6, "c", "c", known="abcde")
    case.hold(at(90, (1, 0), (5, 10)), "ab")
    case.hold(at(21, (1, 0), (4, 10), (6, 20)), "c")
    replicas, learners = case.place()
    assert replicas == ["c"]
    assert sorted(learners) == sorted(case.branches) == ["a", "b"]


@pytest.mark.parametrize(("history", "leader"), [([(1, 0), (4, 10)], "c"), ([(1, 0)], "a")])
def test_who_is_back_with_what_others_lacked_leads_also_when_it_was_started_again(
    history: list[tuple[int, int]], leader: str
) -> None:
    case = Case("ac")
    case.view(5, "a", "a", known="ac").losses.missing[0] = ["c"]
    case.bases["c"] = View(4, members_of(["c"]), [["c"]], [[]], ["a", "c"])
    case.serving = ["a"]
    case.members[1] = Member("c", 2, "", "c", ACTIVE)
    case.hold(at(90, (1, 0), (5, 10)), "a")
    case.hold(at(20 if len(history) > 1 else 9, *history), "c")
    assert case.place()[0] == [leader]
    assert case.branches == (["a"] if leader == "c" else [])


def test_an_old_view_of_one_that_starts_again_proves_nothing() -> None:
    """With more of the membership in it, it would have won, and what was committed since would have been lost."""
    case = Case("abc")
    case.bases["c"] = View(3, members_of(list("abc")), [["c"]], [[]], ["a", "b", "c"])
    newer = case.view(5, "ab", "ab", known="abc")
    case.serving = ["a", "b"]
    case.members[2] = Member("c", 2, "", "c", ACTIVE)
    case.hold(at(20, (1, 0), (5, 10)), "ab")
    case.hold(at(10, (1, 0)), "c")
    assert sorted(case.place()[0]) == ["a", "b"]
    assert newer.votes() < case.bases["c"].votes()


def test_a_filled_learner_that_starts_again_is_not_filled_any_more() -> None:
    case = Case("abc")
    case.view(1, "abc", "ab", "c")
    case.hold(at(9, (1, 0)), "abc")
    case.filled["a"] = [(0, "c")]
    assert case.place()[1] == []
    case.members[2] = Member("c", 2, "", "c", ACTIVE)
    del case.bases["c"]
    assert case.place()[1] == ["c"]


def test_a_damaged_copy_never_leads_and_is_filled() -> None:
    case = Case("abc")
    case.view(1, "abc", "abc")
    case.hold(at(9, (1, 0)), "bc")
    case.hold(at(9, (1, 0), state=DAMAGED), "a")
    replicas, learners = case.place()
    assert sorted(replicas) == ["b", "c"]
    assert learners == ["a"]


def test_a_partition_with_damaged_copies_only_has_no_leader() -> None:
    case = Case("ab")
    case.hold(at(9, (1, 0), state=DAMAGED), "ab")
    assert case.place() == ([], [])


def test_nobody_begins_anew_beside_a_damaged_copy() -> None:
    case = Case("abcd")
    case.hold(at(9, (1, 0), state=DAMAGED), "a")
    assert case.place() == ([], [])


def test_where_nothing_is_complete_the_best_of_the_rest_leads() -> None:
    case = Case("abc")
    case.hold(at(3, (1, 0), state=PARTIAL), "a")
    case.hold(at(7, (1, 0), state=PARTIAL), "b")
    replicas, learners = case.place()
    assert replicas == ["b"]
    assert sorted(learners) == ["a", "c"]


def test_one_that_leaves_keeps_what_it_has_until_others_have_it() -> None:
    case = Case("abcd", leaving="a")
    assert "a" not in case.ideal
    case.view(1, "abcd", "abc")
    case.hold(at(9, (1, 0)), "abc")
    replicas, learners = case.place()
    assert set(replicas) == {"a", "b", "c"}
    assert learners == ["d"]
    case.view(2, "abcd", "".join(replicas), "d")
    case.hold(at(9, (1, 0)), "d")
    case.filled[replicas[0]] = [(0, "d")]
    assert case.place() == (case.ideal, [])


@st.composite
def situations(draw: st.DrawFn) -> Case:
    """Anything: two views of the past, copies in any state, on branches or not.

    Each epoch goes on from one before it, or from nothing, wherever that had come to.
    """
    ids = draw(st.lists(st.sampled_from(IDS), min_size=1, unique=True).map(sorted))
    case = Case("".join(ids), draw(st.integers(1, 3)), draw(st.sampled_from(["", "a", "bc"])))
    for epoch in (5, 6):
        if draw(st.booleans()):
            there = draw(st.lists(st.sampled_from(IDS), min_size=1, unique=True).map(sorted))
            roles = draw(st.permutations(there))
            cut = draw(st.integers(1, len(roles)))
            case.view(epoch, "".join(there), "".join(roles[:cut]), "".join(roles[cut:]))
    lines: list[list[tuple[int, int]]] = [[]]
    for epoch in range(1, 7):
        before = lines[draw(st.integers(0, epoch - 1))]
        lines.append([*before, (epoch, before[-1][1] + draw(st.integers(1, 3)) if before else 0)])
    for one in ids:
        history = draw(st.sampled_from(lines[1:]))
        seq = history[-1][1] + draw(st.integers(1, 3))
        state = draw(st.sampled_from([NONE, PARTIAL, COMPLETE, COMPLETE, COMPLETE, DAMAGED]))
        case.holdings[one] = [Holding(NONE, 0, 0, []) if state == NONE else at(seq, *history, state=state)]
        if draw(st.booleans()):
            case.filled[one] = [(0, draw(st.sampled_from(IDS)))]
    return case


@settings(max_examples=400)
@given(situations())
def test_whatever_members_say_a_leader_and_its_replicas_are_complete_and_on_one_branch(case: Case) -> None:
    replicas, learners = case.place()
    ids = [member.node_id for member in case.members]
    held = {one: case.holdings[one][0] for one in ids}
    assert set(replicas + learners) <= set(ids)
    assert len(set(replicas + learners)) == len(replicas) + len(learners)
    assert len(replicas) <= case.ring.replicas
    assert not [one for one in replicas if held[one].state == DAMAGED]
    if [one for one in ids if held[one].state == COMPLETE]:
        assert all(held[one].state == COMPLETE for one in replicas)
        tips = [one for one in replicas if all(includes(held[one], held[x]) == YES for x in replicas)]
        assert tips, "replicas are on one branch"
    assert set(case.ideal) <= set(replicas + learners) or not replicas
    # What a complete copy alone has is not forgotten.
    if replicas:
        for one in ids:
            mine = held[one]
            others = [held[x] for x in ids if x in replicas or x in learners]
            together = [one in view.replicas[0] and replicas[0] in view.replicas[0] for view in case.bases.values()]
            if mine.state == COMPLETE and not any(together):  # else what only one of them has was told to nobody
                assert any(includes(x, mine) == YES for x in others), one


@given(situations())
def test_the_order_in_which_members_are_told_does_not_matter(case: Case) -> None:
    first = case.place()
    case.members.reverse()
    case.holdings = dict(reversed(case.holdings.items()))
    case.bases = dict(reversed(case.bases.items()))
    assert case.place() == first
