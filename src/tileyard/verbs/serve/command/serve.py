"""``tileyard serve``: shows what is recorded and under way to browsers."""

import asyncio
import gc
import os
from typing import Annotated

import typer

from tileyard.show.typed import TokenFile

ADDRESS = "127.0.0.1:8765"


def serve(
    *,
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Listen there, port 0 for any. Where others can connect, a token is needed.",
        ),
    ] = ADDRESS,
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Another name of this server, as browsers call it. May be repeated.",
        ),
    ] = None,
    token_file: TokenFile = "",
    hosts: Annotated[
        str,
        typer.Option(
            "--hosts",
            metavar="HOSTS",
            help="Also show the devices of these hosts: ssh:HOST,HOST, local:N or FILE.toml.",
        ),
    ] = "",
) -> int:
    """Show runs under way, recorded runs and this host's devices in a browser; pages follow what changes.

    With --hosts an agent starts on each of these hosts to list its devices, every 30 s while somebody looks
    at the page of devices.

    Nothing can be changed there. Only this user's and root's processes on this host get answers, or with a
    token those that know it: browsers ask for it as the password of any user. It can be in
    $TILEYARD_SERVE_TOKEN, too. Ctrl-C ends the server.
    """
    from tileyard.base.errors import ToolMissingError, UsageError
    from tileyard.base.wording import install_extra
    from tileyard.engine.hosts.meeting import Address, read_ticket
    from tileyard.show.opening import load_settings

    try:
        from tileyard.verbs.serve.command.site import open_site
        from tileyard.verbs.serve.plan.access import TOKEN
        from tileyard.verbs.serve.plan.hosts import find_places
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("starlette", "uvicorn"):
            raise
        raise ToolMissingError(
            f"tileyard serve needs {package}, which is not installed", install_extra("pages")
        ) from None
    address = Address.parse(listen)
    if address.path:
        raise UsageError(f"--listen {listen}: browsers connect to HOST:PORT")
    if address.host == "localhost":
        address = Address(host="127.0.0.1", port=address.port)
    places = find_places(hosts)
    settings = load_settings()
    if places:
        settings.make_home()  # for the logs of agents
    has_token = token_file or TOKEN in os.environ
    token = read_ticket(token_file, TOKEN).token if has_token else b""

    gc.freeze()  # what is imported: reports make so many objects that it would be visited again and again

    async def run() -> None:
        async with open_site(
            settings, address, names=name or (), token=token, places=places
        ) as found:
            print(f"serving http://{found}/ (Ctrl-C ends it)", flush=True)
            await asyncio.Event().wait()

    asyncio.run(run())
    return 0
