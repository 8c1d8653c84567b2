"""The keeper's command line, as the package describes it."""

from .deciding import Choice, Wish
from .quarantine import name_part


class Device:
    """One of the devices that would do: ``choice=NAME``, and what follows up to the next one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.locks: list[str] = []
        self.cores: list[int] = []
        self.env: list[tuple[str, str]] = []
        self.probe: list[str] = []
        self.probe_limit_s = 0.0

    @property
    def choice(self) -> Choice:
        """The device as the queue knows it."""
        return Choice(self.name, tuple(map(name_part, self.locks)))

    def take(self, key: str, value: str) -> None:
        """One option of it."""
        if key == "lock":
            self.locks.append(value)
        elif key == "device-cores":
            self.cores = parse_numbers(value)
        elif key == "env":
            name, _, text = value.partition("=")
            self.env.append((name, text))
        elif key == "probe":
            self.probe.append(value)
        elif key == "probe-limit":
            self.probe_limit_s = float(value)
        else:
            raise ValueError(key)


class Options:
    """The command line, taken apart."""

    def __init__(self, arguments: list[str]) -> None:
        end = arguments.index("--")
        pairs = [argument.partition("=")[::2] for argument in arguments[:end]]
        names = [key for key, _ in pairs]
        first = names.index("choice") if "choice" in names else end
        one = dict(pairs[:first])
        self.argv = arguments[end + 1 :]
        self.devices: list[Device] = []
        for key, value in pairs[first:]:
            if key == "choice":
                self.devices.append(Device(value))
            else:
                self.devices[-1].take(key, value)
        self.count = int(one.get("count", "1"))
        self.priority = int(one.get("priority", "0"))
        self.parent = int(one["parent"])
        self.tree = one["tree"]
        self.outer = tuple(token for token in one.get("outer", "").split(":") if token)
        self.cwd = one["cwd"]
        self.control = int(one.get("control", "0"))
        self.reports = int(one.get("reports", "1"))
        self.is_plain = "plain" in one
        self.is_early = "early" in one
        self.is_fixed = "fixed" in one
        self.memory_bytes = int(one.get("memory", "0"))
        self.cores = parse_numbers(one.get("cores", ""))
        self.pass_fds = parse_numbers(one.get("pass", ""))
        self.grace_s = float(one["grace"])
        self.confirm_s = float(one["confirm"])

    @property
    def wish(self) -> Wish:
        """The devices as the queue knows them."""
        return Wish(tuple(device.choice for device in self.devices), self.count)


def parse_numbers(text: str) -> list[int]:
    """``0,1`` as numbers."""
    return [int(part) for part in text.split(",") if part]
