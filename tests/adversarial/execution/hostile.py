"""Hostile candidates: each function is called in a job and tries to do harm.

Runs inside sandboxes and imports nothing of ours but the message type.
"""

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from orienteer.environments.execution.results import Message

LIBC = ctypes.CDLL(None, use_errno=True)


def _name(tag):
    LIBC.prctl(15, tag.encode(), 0, 0, 0)  # PR_SET_NAME


def fine(message):
    print("fine")
    return Message({"seen": dict(message.header)}, message.blobs)


# -- time ---------------------------------------------------------------------------------------------------------


def endless_python(message):
    _name(message.header["tag"])
    while True:
        pass


def endless_c(message):
    _name(message.header["tag"])
    return Message({"sum": sum(range(10**15))})


def endless_sleep(message):
    _name(message.header["tag"])
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1000)


def burn_cpu(message):
    _name(message.header["tag"])
    while True:
        pass


# -- processes ----------------------------------------------------------------------------------------------------


def fork_bomb(message):
    _name(message.header["tag"])
    while True:
        os.fork()


def patient_fork_bomb(message):
    _name(message.header["tag"])
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.001)


def daemon(message):
    """Double fork, own session, all signals ignored, holding every pipe open; the job itself ends well."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _name(message.header["tag"])
            for number in range(1, signal.NSIG):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            while True:
                time.sleep(1000)
        os._exit(0)
    os.wait()
    return Message({"done": True})


def threads(message):
    started = []
    try:
        for _ in range(10_000):
            thread = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        return Message({"started": len(started)})
    return Message({"started": len(started)})


# -- memory, disk, output ------------------------------------------------------------------------------------------


def memory_hog(message):
    hoard = []
    while True:
        hoard.append(bytearray(8 << 20))
        for place in range(0, 8 << 20, 4096):
            hoard[-1][place] = 1


def memory_hog_by_many(message):
    """No process is over the limit; together they are."""
    _name(message.header["tag"])
    for _ in range(8):
        if os.fork() == 0:
            hoard = [b"\1" * (1 << 20) for _ in range(message.header["each_mb"])]
            time.sleep(1000)
            os._exit(len(hoard) % 2)
    time.sleep(1000)


def disk_filler(message):
    """Fill every writable folder; report how much went in."""
    written = 0
    for folder in (os.getcwd(), "/tmp", "/dev/shm", "/dev", "/var/tmp", "/"):
        if message.header.get("only_cwd") and folder != os.getcwd():
            continue
        for number in range(64):
            try:
                with open(f"{folder}/fill{number}", "wb", buffering=0) as file:
                    while written < message.header["enough_mb"] << 20:
                        written += file.write(b"x" * (1 << 20))
            except OSError:
                pass
    return Message({"written_mb": written / 2**20})


def flood_stdout(message):
    while True:
        os.write(1, b"y" * 65536)


def flood_stderr(message):
    while True:
        os.write(2, b"y" * 65536)


def flood_result(message):
    return Message({}, (b"y" * (message.header["mb"] << 20),))


def flood_result_raw(message):
    """Announce an endless result on the result pipe itself."""
    while True:
        os.write(3, b"y" * 65536)


# -- reading --------------------------------------------------------------------------------------------------------


def read_environment(message):
    seen = dict(os.environ)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    seen[entry] = file.read().decode("utf-8", "replace")
            except OSError:
                pass
    return Message({"found": message.header["secret"] in repr(seen)})


def read_files(message):
    found = []
    for path in message.header["paths"]:
        try:
            with open(path) as file:
                found.append(file.read())
        except OSError:
            pass
    return Message({"found": found})


def list_folders(message):
    seen = {}
    for folder in message.header["folders"]:
        try:
            seen[folder] = os.listdir(folder)
        except OSError:
            seen[folder] = None
    return Message({"seen": seen})


def _folders():
    """Every folder that might take a file, a few levels deep."""
    for top, folders, _ in os.walk("/"):
        depth = top.count("/")
        if depth >= (1 if top.startswith(("/proc", "/sys")) else 3):
            folders.clear()
        yield top


def leave_file(message):
    """Leave the secret wherever another candidate might look."""
    left = []
    for folder in (os.getcwd(), *_folders()):
        try:
            with open(f"{folder}/{message.header['file']}", "w") as file:
                left.append(folder)
                file.write(message.header["secret"])
        except OSError:
            pass
    left_queues = 0
    for make in (
        lambda: LIBC.shmget(message.header["key"], 4096, 0o1666),
        lambda: LIBC.semget(message.header["key"], 1, 0o1666),
        lambda: LIBC.msgget(message.header["key"], 0o1666),
    ):
        left_queues += make() >= 0
    return Message({"left": left, "queues": left_queues})


def find_file(message):
    """Look for what another candidate left: in folders, in queues, and through every process that can be seen."""
    found = []
    for folder in _folders():
        if os.path.lexists(f"{folder}/{message.header['file']}"):
            found.append(folder)
    for entry in os.listdir("/proc"):
        for way in ("root/tmp", "cwd"):
            path = f"/proc/{entry}/{way}/{message.header['file']}"
            if entry.isdigit() and os.path.exists(path):
                found.append(path)
    for name in ("shmget", "semget", "msgget"):
        if getattr(LIBC, name)(message.header["key"], 0, 0) >= 0:
            found.append(name)
    return Message({"found": found})


def read_memory(message):
    """Look for the secret in the memory of every process that lets us."""
    opened = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/mem", "rb") as file:
                    opened.append(int(entry))
                    file.read(0)
            except OSError:
                pass
    return Message({"opened": opened, "parent": os.getppid()})


def trace_parent(message):
    tried = {}
    for pid in {os.getppid(), 1}:
        ctypes.set_errno(0)
        result = LIBC.ptrace(16, pid, 0, 0)  # PTRACE_ATTACH
        tried[str(pid)] = [result, ctypes.get_errno()]
    return Message({"tried": tried})


def carry(message):
    """Carry a secret through the worker in every way there is, without keeping it on purpose."""
    secret = message.header["secret"]
    print(secret)
    print(secret, file=sys.stderr)
    return Message({"secret": secret, "list": [secret] * 3}, (secret.encode(), secret.encode() * 5000))


def scan_own_memory(message):
    """Look for the secret in all memory that the job was forked with: what the worker handled before."""
    needle = bytes(byte ^ 0x55 for byte in bytes.fromhex(message.header["masked"]))
    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    top = libc.sbrk(ctypes.c_long(0))
    ranges = [(top - (512 << 20), top)]
    if os.path.exists("/proc/self/maps"):
        ranges = []
        for line in open("/proc/self/maps"):
            span, rights = line.split()[:2]
            start, end = (int(part, 16) for part in span.split("-"))
            if rights.startswith("rw") and end - start < 1 << 30:
                ranges.append((start, end))
    size, found, seen = 1 << 16, 0, 0
    buffer = ctypes.create_string_buffer(size)
    reader, writer = os.pipe()
    for start, end in ranges:
        for place in range(start, end, 4096):
            # write(2) tells without a crash whether a page can be read
            if libc.write(writer, ctypes.c_void_p(place), ctypes.c_size_t(min(4096, end - place))) <= 0:
                continue
            got = libc.read(reader, buffer, size)
            seen += got
            hit = ctypes.string_at(buffer, got).find(needle)
            if hit >= 0 and not (place <= id(needle) < place + 8192):
                found += 1
    return Message({"found": found, "seen_mb": seen / 2**20})


def open_fds(message):
    """Which descriptors came with us, beside stdin, stdout, stderr and our own result pipe?"""
    found = []
    for fd in range(4, 4096):
        try:
            os.fstat(fd)
        except OSError:
            continue
        found.append(fd)
    return Message({"found": found})


# -- reaching out ----------------------------------------------------------------------------------------------------


def connect(message):
    reached, errors = [], []
    for family, address in (
        (socket.AF_INET, ("127.0.0.1", message.header["port"])),
        (socket.AF_INET6, ("::1", message.header["port"])),
        (socket.AF_INET, ("192.0.2.1", 80)),
        (socket.AF_UNIX, "\0" + message.header["abstract"]),
    ):
        try:
            with socket.socket(family) as sock:
                sock.settimeout(2)
                sock.connect(address)
                reached.append(str(address))
        except OSError as error:
            errors.append(str(error))
    return Message({"reached": reached, "errors": errors})


def kill_parent(message):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGSTOP, signal.SIGKILL):
        for pid in (os.getppid(), 1):
            try:
                os.kill(pid, number)
            except OSError:
                pass
    time.sleep(0.2)
    return Message({"survived": True})


def kill_everything(message):
    try:
        os.kill(-1, signal.SIGKILL)
    except OSError:
        pass
    time.sleep(0.2)
    return Message({"survived": True})


def escape(message):
    """System calls that a candidate has no business with; which of them work?"""
    worked = []
    for name, arguments in (
        ("unshare", (0x10000000,)),
        ("unshare", (0x00020000,)),
        ("chroot", (b"/tmp",)),
        ("mount", (b"none", b"/tmp", b"tmpfs", 0, None)),
        ("umount2", (b"/tmp", 2)),
        ("setns", (0, 0)),
        ("sethostname", (b"x", 1)),
        ("setuid", (0,)),
    ):
        if getattr(LIBC, name)(*arguments) == 0:
            worked.append(name)
    numbers = {"bpf": 321, "keyctl": 250, "userfaultfd": 323, "io_uring_setup": 425, "perf_event_open": 298}
    if os.uname().machine == "x86_64":
        for name, number in numbers.items():
            if LIBC.syscall(number, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (1, 38):
                worked.append(name)
    try:
        os.write(os.open("/usr/orienteer-was-here", os.O_CREAT | os.O_WRONLY), b"x")
        worked.append("write /usr")
    except OSError:
        pass
    status = open("/proc/self/status").read() if os.path.exists("/proc/self/status") else ""
    caps = [line for line in status.splitlines() if line.startswith("CapEff")]
    return Message({"worked": worked, "caps": caps, "uid": os.getuid()})


def setuid_program(message):
    done = subprocess.run(["su", "-c", "id"], capture_output=True, stdin=subprocess.DEVNULL, timeout=10)
    return Message({"code": done.returncode, "out": done.stdout.decode("utf-8", "replace")})


# -- forging ----------------------------------------------------------------------------------------------------------


def exit_silently(message):
    os._exit(0)


def exit_loudly(message):
    sys.exit(3)


def crash(message):
    ctypes.string_at(0)


def abort(message):
    os.abort()


def kill_self(message):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)


def _frame(key, value):
    import hashlib
    import hmac
    import json

    text = json.dumps({"ok": True, "header": {"forged": value}}).encode()
    body = struct.pack("<4sII", b"ORNT", len(text), 0) + text
    return body + hmac.new(key, body, hashlib.sha256).digest()


def forge_without_secret(message):
    """Write a perfect frame with a guessed key to every descriptor, then end well."""
    for fd in range(1, 64):
        try:
            os.write(fd, _frame(b"\0" * 32, 1))
        except OSError:
            pass
    os._exit(0)


def forge_then_return(message):
    for fd in range(3, 64):
        try:
            os.write(fd, _frame(b"\0" * 32, 1))
        except OSError:
            pass
    return Message({"honest": True})


def forge_prefix(message):
    """A beginning without an end."""
    os.write(3, _frame(b"\0" * 32, 1)[:20])
    os._exit(0)


def forge_sizes(message):
    """A frame that announces more than any machine has."""
    os.write(3, struct.pack("<4sIIQ", b"ORNT", 2, 1, 1 << 62) + b"{}")
    os._exit(0)


def forge_by_grandchild(message):
    """A grandchild writes junk after the true result."""
    if os.fork() == 0:
        time.sleep(0.05)
        while True:
            try:
                os.write(3, b"junk")
            except OSError:
                os._exit(0)
    return Message({"honest": True})


def two_results(message):
    """Call the harness's own writer twice: the stolen seal is right, but two frames are not one."""
    import gc

    for thing in gc.get_objects():
        if type(thing).__name__ == "Plan" and getattr(thing, "key", b""):
            os.write(3, _frame(thing.key, 1))
            return Message({"honest": True})
    # objects frozen before the fork are hidden from gc; the stack is not
    frame = sys._getframe()
    while frame is not None:
        plan = frame.f_locals.get("plan")
        if plan is not None and getattr(plan, "key", b""):
            os.write(3, _frame(plan.key, 1))
            return Message({"honest": True})
        frame = frame.f_back
    raise RuntimeError("no secret found")


def deep_json(message):
    value = []
    for _ in range(500):
        value = [value]
    return Message({"deep": value})


def not_json(message):
    return Message({"set": {1, 2}})


def not_a_message(message):
    return 7


def evil_exception(message):
    class Evil(Exception):
        def __str__(self):
            raise RuntimeError("no text for you")

    raise Evil


def long_exception(message):
    raise ValueError("x" * (10 << 20))


def linger_after_result(message):
    """A thread keeps the process busy; the harness must not wait for it."""
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return Message({"done": True})
