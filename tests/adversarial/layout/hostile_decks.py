"""Decks that loop, fork, kill, write where they may not, and forge: each with the statuses that it may end in."""

HEAD = 'source($input)\nreport("t", $output)\na = input(1, 0)\n'
DECKS = {
    "loop": (HEAD + "loop {}", {"timeout"}, None),
    "raise": (HEAD + "raise 'oops'", {"error"}, 4),
    "unknown method": (HEAD + "a.foo", {"error"}, 4),
    "syntax": (HEAD + ")", {"error"}, 4),
    "exit 3": (HEAD + "exit 3", {"error"}, None),
    "exit!": (HEAD + "exit!", {"error"}, None),
    "exec": (HEAD + "exec 'true'", {"no-report"}, None),
    "no report": ("source($input)\nreport('x')", {"no-report"}, None),
    "kill itself": (HEAD + "Process.kill(9, $$)", {"crash"}, None),
    "kill the server": (HEAD + "Process.kill(9, Process.ppid)", {"crash"}, None),
    "kill all": (HEAD + "Process.kill(9, -1)", {"crash"}, None),
    "memory": (HEAD + "x = []; loop { x << 'a' * 10_000_000 }", {"limit"}, None),
    "threads": (HEAD + "loop { Thread.new { sleep } }", {"limit"}, None),
    "large file": (HEAD + "File.write('big', 'x' * 600_000_000)", {"limit"}, None),
    "write outside": (HEAD + "File.write('/usr/x', '')", {"error"}, 4),
    "write the layout": (HEAD + "File.write($input, '')", {"error"}, 4),
    "network": (HEAD + "require 'socket'; TCPSocket.new('1.1.1.1', 80)", {"error"}, 4),
    "another layout": ("source('other.gds')", {"error"}, 1),
    "memory of the server": (HEAD + 'File.open("/proc/#{Process.ppid}/mem", "r+")', {"error"}, 4),
    "pipe of the server": (
        HEAD
        + '(3..40).each { |n| begin; File.open("/proc/#{Process.ppid}/fd/#{n}", "w"); exit! 0; '
        + 'rescue SystemCallError; end }\nraise "no"',
        {"error"},
        5,
    ),
    "forged frames": (
        HEAD + "ObjectSpace.each_object(IO) { |io| io.write('\\0' * 100) rescue nil; io.flush rescue nil }\nexit! 0",
        {"crash", "no-report", "error"},
        None,
    ),
}
#: Leaves a process behind that would kill the server later.
LURKER = HEAD + "fork { Process.setsid; sleep 0.5; Process.kill(9, -1) }\nFile.write('/tmp/left', 'x')\na.output('A')"
LOOKS = HEAD + "raise 'found' if File.exist?('/tmp/left') || !Dir.children('.').empty?\nsleep 0.8\na.output('A')"
