# The server that runs decks: a script for KLayout's `strmrun`. It loads layouts once, forks a child per deck (or per
# run), and passes on what the child says of each layout, with what only the parent can know: whether the child lived,
# how long it took, how it died. The parent never evaluates deck text and never interprets what a child writes.
#
# Environment: ORIENTEER_ENGINE   folder of the engine's Ruby sources
#              ORIENTEER_KEEP_MB  memory that kept layouts may add before the oldest is dropped
#              ORIENTEER_ALONE    "1": nobody but us and process 1 lives in our pid namespace
#
# Standard input and output carry frames: a length (4 bytes, big endian), then fields, each with its length before it.
# In:   "deck", text, time-out (s), memory (MiB), "deck" or "run", flags ("g": geometry, "r": report file), paths ...
# Out:  "ready", what is wrong or "" | "load", index | "bad", index, message | "run", index
#       "done", index, cpu seconds, the child's own fields | "timeout", index, cpu | "died", index, cpu, how
#       "end", resident MiB

DECK = "deck.drc"
WORK = Dir.pwd
LARGEST = 512 << 20

def pack(fields)
  fields = fields.map { |f| f.to_s.b }
  fields.flat_map { |f| [f.bytesize, f] }.pack("Na*" * fields.size)
end

def unpack(data)
  fields, at = [], 0
  while at < data.bytesize
    size = data.byteslice(at, 4).unpack1("N")
    fields << data.byteslice(at + 4, size)
    at += 4 + size
  end
  fields
end

# The pages of this process, in MiB.
def resident
  File.read("/proc/self/statm").split[1].to_i * 4096 / 1048576
end

# Nobody of our user may then trace us, open our memory or our open files. Returns what is wrong, or "".
def close_to_others
  number = { "x86_64" => 157, "aarch64" => 167 }[RUBY_PLATFORM[/\A[^-]+/]]
  return "no number of prctl(2) is known for #{RUBY_PLATFORM}" unless number
  verbose, $VERBOSE = $VERBOSE, nil
  syscall(number, 4, 0, 0, 0)
  ""
rescue SystemCallError, NotImplementedError => e
  "prctl(2) fails: #{e.message}"
ensure
  $VERBOSE = verbose
end

# -- KLayout's engine, without a window ------------------------------------------------------------------------------

module RBA
  class LayoutView
    def self.current
      nil
    end
  end

  class CellView
    def self.active
      nil
    end
  end
end

# The engine asks for two full collections a run, which is most of the time of a small one. A large one needs them,
# since what the collector frees is large on KLayout's side only.
module GC
  @asked = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  class << self
    alias orienteer_start start
    def start(**options)
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      return if now - @asked < 1.0
      @asked = now
      orienteer_start(**options)
    end
  end
end

engine = ENV.delete("ORIENTEER_ENGINE")
KEEP_MB = ENV.delete("ORIENTEER_KEEP_MB").to_i
ALONE = ENV.delete("ORIENTEER_ALONE") == "1" && Process.ppid == 1
# The parts need each other in an order that is not the same in every version: one that lacks a name waits.
waiting = Dir["#{engine}/_drc_*.rb"].sort
until waiting.empty?
  complaint = nil
  later = waiting.reject do |file|
    load(file)
  rescue NameError => e
    complaint = e
    false
  end
  raise complaint if later.size == waiting.size
  waiting = later
end

module DRC
  # The layout that is loaded already takes the place of the file.
  module Kept
    def self.put(path, layout)
      @path, @layout = path, layout
    end

    # Once: a second reading of the same file gives a second layout, as in KLayout.
    def self.take(path)
      return nil unless @layout && path == @path
      layout, @layout = @layout, nil
      layout
    end

    def source(arg = nil, arg2 = nil)
      kept = arg.is_a?(String) && (arg2.nil? || arg2.is_a?(String)) ? Kept.take(arg) : nil
      return super unless kept
      found = arg2 ? super(kept, arg2) : super(_one_top(kept))
      found.instance_variable_set(:@path, arg)
      @def_path ||= arg
      found
    end

    def _one_top(layout)
      _context("source") { layout.top_cell || raise("The layout has no top cell") }
    end
  end
  DRCEngine.prepend(Kept)

  # Which categories are below which: KLayout 0.28 has no way to ask for that which works.
  module SubCategories
    def self.of
      @of ||= {}
    end

    def create_category(*args)
      made = super
      (SubCategories.of[args[0].rdb_id] ||= []) << made.rdb_id if args.size == 2
      made
    end
  end
  RBA::ReportDatabase.prepend(SubCategories)

  # Where deck text is evaluated: in the lexical scope that KLayout gives it.
  class Deck
    attr_reader :engine

    def initialize
      @engine = DRCEngine.new
    end

    def evaluate(text)
      @engine._start("DRC")
      @engine.instance_eval(text, DECK)
    end
  end
end

# -- in the child ----------------------------------------------------------------------------------------------------

# One run and what is to be said of it.
class Run
  def initialize(text, layout, input, flags)
    @text, @layout, @input, @flags = text, layout, input, flags
  end

  def fields
    $input = @input
    $output = "#{Dir.pwd}/report.lyrdb"
    File.unlink($output) if File.exist?($output)
    DRC::Kept.put(@input, @layout)
    DRC::SubCategories.of.clear
    @deck = DRC::Deck.new
    @text = included(@text)
    ended = evaluate
    return ended if ended
    rdb = @deck.engine.instance_variable_get(:@output_rdb)
    rdb = nil unless rdb && here?(@deck.engine.instance_variable_get(:@output_rdb_file))
    said = rdb ? report(rdb) : nil
    # Saving costs as much as a small check: only where it is wanted.
    # A report to elsewhere is none, and there is nowhere else to write to.
    @deck.engine.instance_variable_set(:@output_rdb_file, nil) unless rdb && @flags.include?("r")
    @deck.engine._finish
    return ["ok", @flags.include?("r") ? File.binread($output) : "", *said] if said
    # The deck wrote it without the engine, or the engine before a `target`.
    File.file?($output) ? ["file", File.binread($output)] : ["no-report"]
  rescue Exception => e # rubocop:disable Lint/RescueException
    failure(e)
  end

  private

  def evaluate
    @deck.evaluate(@text)
    nil
  rescue SystemExit => e
    e.success? ? nil : ["error", "the deck ended with exit status #{e.status}", line(e)]
  rescue Exception => e # rubocop:disable Lint/RescueException
    failure(e)
  end

  # KLayout puts the text of other files in the place of `# %include FILE` before Ruby sees it.
  def included(text, depth = 0)
    return text unless text.include?("%include")
    raise "files include each other without end" if depth > 20
    text.lines.map do |line|
      file = line[/\A\s*#\s*%include\s+(.*?)\s*\z/, 1]
      next line unless file
      raise "%include #{file}: no such file in the sandbox" unless File.file?(file)
      included(File.read(file), depth + 1)
    end.join
  end

  def here?(file)
    file && File.absolute_path(file, File.dirname(@input)) == $output
  end

  def report(rdb)
    found = []
    rdb.each_category { |category| add(rdb, category, "", found) }
    [found.size, *found.flatten(1)]
  end

  def add(rdb, category, above, found)
    name = above + category.name
    subs = (DRC::SubCategories.of[category.rdb_id] || []).map { |id| rdb.category_by_id(id) }.compact
    own = subs.sum(category.num_items) { |sub| -sub.num_items }
    shapes = @flags.include?("g") ? values(rdb, category) : []
    found << [name, own, category.description, shapes.size, *shapes]
    subs.each { |sub| add(rdb, sub, "#{name}.", found) }
  end

  def values(rdb, category)
    shapes = []
    rdb.each_item_per_category(category.rdb_id) do |item|
      item.each_value { |value| shapes << value.to_s if value.tag_id.zero? }
    end
    shapes
  end

  def failure(error)
    kind = limit?(error) ? "limit" : "error"
    text = error.message.to_s.lines.map(&:strip).reject(&:empty?).first.to_s[0, 400]
    # What an object says of itself is long and not the same twice.
    text = text.sub(/ for (#<|DRCEngine|main).*/m, "") if error.is_a?(NameError)
    name = error.class.name
    text = "#{name}: #{text}" unless %w[RuntimeError SyntaxError].include?(name)
    [kind, text, line(error)]
  end

  def limit?(error)
    case error
    when NoMemoryError, Errno::EAGAIN, Errno::ENOSPC, Errno::EFBIG, Errno::ENOMEM, Errno::EMFILE then true
    when ThreadError then error.message.include?("can't create")
    else error.message.to_s.match?(/bad_alloc|not enough memory|out of memory/i)
    end
  end

  def line(error)
    return error.message[/#{DECK}:(\d+)/o, 1] if error.is_a?(SyntaxError)
    place = (error.backtrace_locations || []).find { |l| l.path == DECK }
    place ? place.lineno : (error.backtrace || []).grep(/\A#{DECK}:/o).first.to_s[/:(\d+)/, 1]
  end
end

def child(text, jobs, memory, seconds, flags, out)
  Process.setsid
  $stdin.reopen(File::NULL)
  [$stdout, $stderr].each { |stream| stream.reopen(File::NULL, "w") }
  limit = File.read("/proc/self/statm").split[0].to_i * 4096 + (memory << 20)
  Process.setrlimit(:AS, limit, limit)
  Process.setrlimit(:CORE, 0, 0)
  cpu = (seconds * jobs.size).ceil + 1
  Process.setrlimit(:CPU, cpu, cpu + 1)
  own = $$
  jobs.each do |layout, path|
    fields = Run.new(text, layout, path, flags).fields
    exit!(0) unless Process.pid == own # a process that the deck forked and let return
    Thread.list.each { |thread| thread.kill unless thread == Thread.current }
    data = pack(fields)
    out.write([data.bytesize].pack("N"), data)
    out.flush
  end
  exit!(0)
rescue Exception # rubocop:disable Lint/RescueException
  exit!(70)
end

# -- the parent ------------------------------------------------------------------------------------------------------

# Loaded layouts, the oldest dropped first.
class Shelf
  def initialize
    @layouts = {}
    @base = resident
  end

  def get(path)
    found = @layouts.delete(path) || read(path)
    @layouts[path] = found
  end

  def has?(path)
    @layouts.key?(path)
  end

  # Whether what is kept is more than may be.
  def full?
    resident - @base > KEEP_MB
  end

  # Drop all but what is needed next.
  def trim(needed)
    @layouts.keys.each do |path|
      break unless full?
      next if needed.include?(path)
      @layouts.delete(path)._destroy
    end
  end

  private

  def read(path)
    layout = RBA::Layout.new
    layout.read(path)
    layout
  end
end

# Passes decks on to children.
class Server
  def initialize(input, output)
    @input, @output = input, output
    @shelf = Shelf.new
  end

  def serve
    while (head = @input.read(4)) && head.bytesize == 4
      kind, *rest = unpack(@input.read(head.unpack1("N")))
      raise "unknown job #{kind}" unless kind == "deck"
      deck(*rest)
      say("end", resident)
    end
  end

  def say(*fields)
    data = pack(fields)
    @output.write([data.bytesize].pack("N") + data)
    @output.flush
  end

  private

  def deck(text, seconds, memory, isolate, flags, *paths)
    text = text.force_encoding(Encoding::UTF_8)
    seconds, memory = seconds.to_f, memory.to_i
    left = paths.each_with_index.to_a
    until left.empty?
      group = take(left, isolate == "run" ? 1 : left.size)
      run(text, group, seconds, memory, flags) until group.empty?
    end
  end

  # Load the layouts of the next child: as many as memory allows, at least one.
  def take(left, most)
    group = []
    while group.size < most && !left.empty?
      path, index = left.first
      if @shelf.full?
        break unless group.empty?
        @shelf.trim([path])
      end
      left.shift
      begin
        say("load", index) unless @shelf.has?(path)
        group << [@shelf.get(path), path, index]
      rescue StandardError => e
        say("bad", index, e.message.lines.first.to_s.strip[0, 400])
      end
    end
    group
  end

  # Fork a child for the group and take what it says; what is left in the group afterwards needs a fresh child.
  def run(text, group, seconds, memory, flags)
    read, write = IO.pipe
    work = fresh_folder
    pid = start(text, group, seconds, memory, flags, read, write, work)
    write.close
    cpu = 0.0
    until group.empty?
      index = group.first[2]
      say("run", index)
      data = frame(read, seconds)
      now = data == :end ? nil : spent(pid)
      break finish(pid, index, data, group, cpu, now) if data.is_a?(Symbol)
      say("done", index, format("%.6f", [now - cpu, 0].max), data)
      cpu = now
      group.shift
    end
    read.close
    finish(pid, nil, :kill, group, cpu, nil) if group.empty? && @running
    sweep(work)
  end

  def start(text, group, seconds, memory, flags, read, write, work)
    tries = 0
    begin
      @running = fork do
        read.close
        @input.close
        @output.close
        Dir.chdir(work)
        child(text, group.map { |layout, path, _| [layout, path] }, memory, seconds, flags, write)
      end
    rescue Errno::EAGAIN # process 1 has not yet buried what a deck left behind
      raise if (tries += 1) > 100
      sleep(0.02)
      retry
    end
  end

  # End the child: by itself where it has closed its pipe, else by force; say how where a layout was under way.
  def finish(pid, index, how, group, cpu, now)
    if how == :end
      status = buried(pid, 2.0)
    end
    unless status
      kill(pid)
      _, status = Process.wait2(pid)
    end
    @running = nil
    return unless index
    used = format("%.6f", now ? [now - cpu, 0].max : 0)
    if how == :timeout
      say("timeout", index, used)
    else
      say("died", index, used, death(how, status))
    end
    group.shift
  end

  def death(how, status)
    return "frame" if how == :frame
    return "signal #{status.termsig}" if status.signaled?
    "exit #{status.exitstatus}"
  end

  def buried(pid, seconds)
    until_ = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
    loop do
      _, status = Process.wait2(pid, Process::WNOHANG)
      return status if status
      return nil if Process.clock_gettime(Process::CLOCK_MONOTONIC) > until_
      sleep(0.001)
    end
  end

  def kill(pid)
    [-pid, pid].each do |who|
      Process.kill(:KILL, who)
    rescue Errno::ESRCH, Errno::EPERM
      next
    end
  end

  # The processor seconds of the child, by its own clock, which it cannot set.
  def spent(pid)
    Process.clock_gettime((~pid << 3) | 2)
  rescue SystemCallError
    0.0
  end

  def frame(read, seconds)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
    head = exactly(read, 4, deadline)
    return head if head.is_a?(Symbol)
    size = head.unpack1("N")
    return :frame if size > LARGEST
    exactly(read, size, deadline)
  end

  def exactly(read, size, deadline)
    data = "".b
    while data.bytesize < size
      left = deadline - Process.clock_gettime(Process::CLOCK_MONOTONIC)
      return :timeout if left <= 0 || !IO.select([read], nil, nil, left)
      begin
        data << read.read_nonblock(size - data.bytesize)
      rescue IO::WaitReadable
        next
      rescue EOFError
        return :end
      end
    end
    data
  end

  def fresh_folder
    @folder = (@folder || 0) + 1
    path = "#{WORK}/deck-#{@folder}"
    Dir.mkdir(WORK) unless File.directory?(WORK) # a deck may have moved it away
    Dir.mkdir(path)
    path
  end

  # Leave nothing of a deck for the next one: neither a process nor a file.
  def sweep(work)
    Process.kill(:KILL, -1) if ALONE
  rescue Errno::ESRCH, Errno::EPERM
    nil
  ensure
    remove(work)
    wipe if ALONE
  end

  def wipe
    ["/tmp", "/dev/shm"].each do |top|
      Dir.children(top).each do |name|
        path = "#{top}/#{name}"
        facts = File.lstat(path)
        remove(path) if path != WORK && facts.owned? && facts.dev == File.lstat(top).dev # no mount of what is shown
      rescue SystemCallError
        next
      end
    end
    Dir.children(WORK).each { |name| remove("#{WORK}/#{name}") }
  rescue SystemCallError
    nil
  end

  def remove(path)
    if File.lstat(path).directory?
      begin
        File.chmod(0o700, path)
        Dir.children(path).each { |name| remove("#{path}/#{name}") }
        Dir.rmdir(path)
      rescue SystemCallError
        nil
      end
    else
      File.unlink(path)
    end
  rescue SystemCallError
    nil
  end
end

# Moved away from where a child's own streams are; both close at an exec.
input, output = $stdin.dup, $stdout.dup
input.binmode
output.binmode
$stdin.reopen(File::NULL)
$stdout.reopen(File::NULL, "w")
server = Server.new(input, output)
GC.orienteer_start
server.say("ready", close_to_others)
server.serve
exit!(0)
