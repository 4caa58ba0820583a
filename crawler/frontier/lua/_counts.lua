-- Counts by what URLs descend from: a seed, or a run of a job. Store e: number of the seed -> msgpack {added, done, dead}, id of
-- the run -> msgpack of RunCounts. Collected while a script runs, and written once, at its end. A deferred URL of a seed counts
-- as neither done nor dead.
-- In scripts, a seed is a number and a run is text; the crawl itself is the run ''. A URL of a run has '!' and the run's id in
-- its stamp, where others have the number of a seed.
-- closed: zset of runs that were closed -> when (ms on the partition clock; see close_run.lua). Nothing is added to these.
local ADDED, DONE, DEAD = 1, 2, 3 -- of both

local function is_run(run) return run ~= '' end

local run_of
do
  local RUN_AT, RUN_MARK = 6, 33 -- a stamp begins behind the first character of a member, with four digits of a time

  -- The run that a member belongs to; nil for most.
  function run_of(member)
    if string.byte(member, RUN_AT) == RUN_MARK then return (string.match(member, '^[^/ ~"]+', RUN_AT + 1)) end
  end
end

-- The run by what a script was given as seed.
local function run_named(seed) return type(seed) == 'string' and seed or '' end

local function is_closed(run) return is_run(run) and call('ZSCORE', ctx.prefix .. 'closed', run) ~= false end

local count_seed, count_run, write_seeds
do
  local function no_counts(seed)
    local counts = {}
    for i = 1, type(seed) == 'string' and RunCounts.size or DEAD do counts[i] = 0 end
    return counts
  end

  function count_seed(seed, what, n)
    if not seed or seed == 0 then return end
    local counts = ctx.seeds[seed] or no_counts(seed)
    counts[what], ctx.seeds[seed] = counts[what] + n, counts
  end

  -- The same, for what is counted of runs only.
  function count_run(seed, what, n)
    if type(seed) == 'string' then count_seed(seed, what, n) end
  end

  -- A run gets its counts with its first URL. So those of a run that was closed do not come back when its last URLs end. meta's
  -- run_added and run_done are those parts of added and done that are of runs, also of closed ones; both only grow.
  function write_seeds()
    local of_runs = {run_added = 0, run_done = 0}
    for seed, more in pairs(ctx.seeds) do
      local is_of_run = type(seed) == 'string'
      if is_of_run then
        of_runs.run_added = of_runs.run_added + more[ADDED]
        for _, what in ipairs({DONE, DEAD, RunCounts.deferred}) do
          local field = more[what] > 0 and 'run_done' or 'run_added'
          of_runs[field] = of_runs[field] + math.abs(more[what])
        end
      end
      local name = is_of_run and seed or string.format('%d', seed)
      local packed = compact_get('e', name)
      if packed or not is_of_run or more[ADDED] > 0 then
        local counts = packed and cmsgpack.unpack(packed) or no_counts(seed)
        for i, n in ipairs(more) do counts[i] = (counts[i] or 0) + n end -- earlier releases counted less
        compact_put('e', name, cmsgpack.pack(counts))
      end
    end
    if of_runs.run_added ~= 0 or of_runs.run_done ~= 0 then bump(ctx.meta_key, of_runs) end
  end
end
