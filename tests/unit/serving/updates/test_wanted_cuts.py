"""Which cuts a version shows: layers until they are folded, and what was missed."""

from __future__ import annotations

from hotrow.serving.updates.wanted_cuts import WantedCuts, remembered_cuts, wanted_cuts
from hotrow.store.cuts import CutRecord
from hotrow.store.spec import Generation, State, row_version

GENERATION = Generation(
    generation="ab" * 16,
    number=1,
    model="m",
    version=1,
    step=7,
    source="",
    state=State.COMPLETE,
    schema_hash="",
    created_ms=0,
    epoch=3,
    seq=0,
    tables=(),
)
EXPORTED = GENERATION.row_version


def version(number: int) -> int:
    return row_version(3 + number, number)


def cut(number: int, *, folded: bool = False) -> CutRecord:
    """Returns the record of cut 1, 2, ..., each of which goes on from the one before."""
    return CutRecord(
        generation=GENERATION.generation,
        epoch=3 + number,
        seq=number,
        step=100 * number,
        clocks=(number,),
        rows=1,
        removed=0,
        previous=0 if number == 1 else version(number - 1),
        places=((0, 0),),
        folded=folded,
    )


def layers(wanted: WantedCuts) -> list[int]:
    return [layer.seq for layer in wanted.layers]


def test_without_cuts_rows_are_those_exported() -> None:
    for shown in (None, EXPORTED):
        assert wanted_cuts(GENERATION, [], shown) == WantedCuts(
            EXPORTED, 7, None, (), fence=EXPORTED
        )


def test_who_begins_lays_what_is_not_folded_the_newest_first() -> None:
    wanted = wanted_cuts(GENERATION, [cut(1, folded=True), cut(2), cut(3)], None)
    assert (wanted.version, wanted.step) == (version(3), 300)
    assert wanted.newest == cut(3)
    assert layers(wanted) == [3, 2]
    assert not wanted.missed
    alone = wanted_cuts(GENERATION, [cut(4, folded=True)], None)
    assert alone.version == version(4)
    assert layers(alone) == []
    assert not alone.missed


def test_a_cut_that_is_new_to_a_server_is_laid_even_when_it_is_folded() -> None:
    cuts = [cut(1, folded=True), cut(2, folded=True)]
    assert layers(wanted_cuts(GENERATION, cuts, EXPORTED)) == [2, 1]
    assert layers(wanted_cuts(GENERATION, cuts, version(1))) == [2]
    assert layers(wanted_cuts(GENERATION, cuts, version(2))) == []


def test_a_cut_that_is_shown_is_laid_until_it_is_folded() -> None:
    assert layers(wanted_cuts(GENERATION, [cut(1), cut(2)], version(2))) == [2, 1]
    assert layers(wanted_cuts(GENERATION, [cut(1, folded=True), cut(2)], version(2))) == [2]


def test_cuts_that_were_forgotten_before_they_were_shown_are_missed() -> None:
    folded = [cut(3, folded=True), cut(4)]
    assert wanted_cuts(GENERATION, folded, EXPORTED).missed
    assert wanted_cuts(GENERATION, folded, version(1)).missed
    assert not wanted_cuts(GENERATION, folded, version(2)).missed
    assert not wanted_cuts(GENERATION, folded, version(3)).missed
    assert wanted_cuts(GENERATION, [cut(2, folded=True), cut(4)], version(2)).missed
    assert not wanted_cuts(GENERATION, [cut(1), cut(2)], EXPORTED).missed


def test_a_folded_cut_that_a_shard_has_lost_is_laid_again() -> None:
    cuts = [cut(1, folded=True), cut(2, folded=True), cut(3)]
    assert layers(wanted_cuts(GENERATION, cuts, version(3), version(2))) == [3]
    assert layers(wanted_cuts(GENERATION, cuts, version(3), version(1))) == [3, 2]
    assert layers(wanted_cuts(GENERATION, cuts, version(3), EXPORTED)) == [3, 2, 1]


def test_a_layer_never_hides_the_rows_of_a_later_folded_cut() -> None:
    cuts = [cut(1), cut(2, folded=True), cut(3, folded=True)]
    for low in (None, version(3)):
        wanted = wanted_cuts(GENERATION, cuts, version(3), low)
        assert layers(wanted) == [3, 2, 1]
        assert wanted.fence == EXPORTED


def test_what_was_read_before_a_cut_that_is_gone_meanwhile_is_not_laid() -> None:
    cuts = [cut(1), cut(2), cut(4, folded=True), cut(5)]
    wanted = wanted_cuts(GENERATION, cuts, version(5), version(4))
    assert layers(wanted) == [5]
    assert wanted.fence == version(4)
    assert layers(wanted_cuts(GENERATION, cuts[:3], version(4), version(4))) == []


def test_rows_of_the_newest_cut_that_no_layer_has_are_the_fence() -> None:
    cuts = [cut(2, folded=True), cut(3)]
    assert wanted_cuts(GENERATION, cuts, version(3)).fence == version(2)
    assert wanted_cuts(GENERATION, cuts[:1], version(2)).fence == version(2)
    assert wanted_cuts(GENERATION, cuts, version(1)).fence == version(1)
    assert wanted_cuts(GENERATION, [cut(1)], EXPORTED).fence == EXPORTED


def test_a_cut_that_its_store_has_lost_is_shown_by_the_rows_at_hand() -> None:
    known = [cut(2), cut(3), cut(4)]

    def remembered(low: int) -> WantedCuts | None:
        return remembered_cuts(GENERATION, cut(4), known, low)

    for low, laid in ((4, []), (3, [4]), (2, [4, 3]), (1, [4, 3, 2])):
        wanted = remembered(version(low))
        assert wanted is not None
        assert (layers(wanted), wanted.fence, wanted.version) == (laid, version(low), version(4))
    assert remembered(EXPORTED) is None
