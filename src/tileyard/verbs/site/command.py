"""``tileyard site``: static pages for a team, with the history of every case."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tileyard.show.kernel_options import USUAL_MARGIN, SmallestChange
from tileyard.show.typed import AsJson


def site(  # noqa: PLR0913 - options, by keyword only
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="The folder of the pages: a site, or empty.")
    ],
    *,
    home: Annotated[
        list[str] | None,
        typer.Option(
            "--home", metavar="DIR", help="A data directory to read; again for more of them."
        ),
    ] = None,
    release: Annotated[
        str,
        typer.Option(
            metavar="TAG|COMMIT", help="Also compare each case with its time at this release."
        ),
    ] = "",
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="COMMIT",
            help="The commit of new runs that recorded none, as those of bundles.",
        ),
    ] = "",
    roof: Annotated[
        list[str] | None,
        typer.Option(
            "--roof",
            metavar="DEVICE=GFLOPS,GBS",
            help="What devices can do whose silicon or name contains this, in GFLOP/s and GB/s, as in "
            "H100=989000,3350; again for more of them.",
        ),
    ] = None,
    margin: SmallestChange,
    json: AsJson = False,
) -> int:
    """Write static pages with the history of every case: what regress, tune and test have timed.

    The first page names what became slower, and with which commit; each case has a page. The folder remembers
    all that its pages show, so a later call adds the runs that are new and rewrites only the pages that this
    changes, even where the runs before are recorded nowhere else. Commits are named as the git repository of
    the working directory has them.

    Exit status: 0 written, also where cases became slower, 2 bad usage, or nothing is recorded.
    """
    from tileyard.show.opening import load_settings, present
    from tileyard.show.values import parse_share
    from tileyard.verbs.site.plan.folder import SiteFolder
    from tileyard.verbs.site.plan.updating import Fresh, find_commit_at
    from tileyard.verbs.site.view.made import Wanted, make_pages, print_made, read_roofs

    share = parse_share(margin or USUAL_MARGIN, "--margin")
    wanted = Wanted(release=release, margin=share, roofs=read_roofs(roof or ()))
    own = load_settings().home
    homes = [Path(one) for one in home or (own,)]
    with SiteFolder.open(Path(folder)) as opened:
        fresh = Fresh(find_commit_at(Path.cwd(), at) if at else "")
        if opened.manifest.runs and not home and not own.is_dir():
            homes = []  # as in a job that timed nothing: the site is made again from what it remembers
        for one in homes:
            fresh.read(one, opened.manifest)
        made = make_pages(opened, fresh, wanted)
    for skipped in fresh.skipped:
        print(f"tileyard: {skipped}", file=sys.stderr)
    present(made, json, print_made)
    return 0
