import pytest
from taskpack.parallel import PipelineSplit, Slot, rank_folder, spread


def test_layers_are_numbered_from_zero_on_each_stage() -> None:
    split = PipelineSplit.parse([1, 2])
    assert split.slots() == [Slot(0, 0, 0), Slot(1, 0, 0), Slot(1, 0, 1)]
    assert (split.pp_size, split.vpp_size, split.total) == (2, 1, 3)


def test_virtual_stages_run_through_all_stages_first() -> None:
    split = PipelineSplit.parse([[0, 1], [2, 1]])
    assert split.slots() == [Slot(1, 0, 0), Slot(0, 1, 0), Slot(0, 1, 1), Slot(1, 1, 0)]
    assert split.to_lists() == [[0, 1], [2, 1]]


@pytest.mark.parametrize(
    "layers", [[], [[]], [4, 9.5], [4, -1], [4, True], [[1], [1, 2]], [1, [2]], "44", 4, None]
)
def test_anything_but_lists_of_whole_numbers_is_refused(layers: object) -> None:
    with pytest.raises(ValueError, match=r"layers|stages|numbers"):
        PipelineSplit.parse(layers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ({"pp_size": 1}, "mp_rank_03"),
        ({"pp_size": 8}, "mp_rank_03_005"),
        ({"pp_size": 8, "ep_rank": 2, "ep_size": 4}, "mp_rank_03_005_002"),
        ({"pp_size": 1, "ep_rank": 2, "ep_size": 4}, "mp_rank_03_002"),
    ],
)
def test_rank_folders_show_stage_and_expert_only_with_several(
    sizes: dict[str, int], name: str
) -> None:
    assert rank_folder(3, 5, **sizes) == name


def test_layers_are_spread_so_that_stages_weigh_the_same() -> None:
    assert spread([0.0, 0.0], 1.0, 4) == (2, 2)
    assert spread([2.0, 0.0, 1.0], 1.0, 6) == (1, 3, 2)
    assert spread([9.0, 0.0], 1.0, 4) == (1, 3)
