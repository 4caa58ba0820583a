-- Queues. w:<queue> is the record of a queue, msgpack: ten numbers, then a map of what is rare. partition_keys.py tells
-- what each means, as of the keys here, and makes the constants of their positions.
--
-- One record, because nearly every script needs most of the numbers: it reads a record once, changes it here, and writes
-- it once, in close_queues (see _close.lua). Two hashes that were changed field by field took eight commands for the end
-- of a claim. The record of an idle queue is in a compact store instead (kind h): it takes some 190 bytes there with its
-- robots.txt, where two hashes took 436. Its clock may be forgotten then, because it only ever means "not before".
--
-- Queues with a boost (a nonzero integer) are in a ready set of their own, so that the highest is found at once.
--
-- The URLs of a user other than '' are in blocks of their own, the row QUEUE|@USER. It has no record: users in the record
-- of its queue has its URLs and blocks, and turns the users' turns (see _turns.lua). n counts the URLs of all. Such a
-- queue is in a ready set for each user that has URLs in it: so a backlog of one never hides a queue of another. There
-- is one clock for all of them: politeness is owed to the site, whoever asks.
local IDLE_MS = 60000 -- from the end of its clock until an idle queue's record goes to a store
local GRANTED = '-'

local read_queues, record_of
do
  local function record_from(queue, key, packed)
    if not packed then
      packed = compact_get('h', queue)
      if packed then
        call('SET', key, packed)
        compact_drop('h', queue)
      end
    end
    if not packed then return {queue = queue, key = key, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, {}} end
    -- is_changed and settled_from are named here to give the table room for them.
    return {queue = queue, key = key, is_changed = false, settled_from = nil, values_of(packed, 1)}
  end

  -- Read the records of several queues at once.
  function read_queues(queues)
    local names, keys, n = {}, {}, 0
    for _, queue in ipairs(queues) do
      if not ctx.records[queue] then
        n = n + 1
        names[n], keys[n], ctx.records[queue] = queue, ctx.prefix .. 'w:' .. queue, true
      end
    end
    for from = 1, n, AT_ONCE do
      local packed = call('MGET', unpack(keys, from, math.min(from + AT_ONCE - 1, n)))
      for i, value in ipairs(packed) do
        local queue = names[from + i - 1]
        ctx.records[queue] = record_from(queue, keys[from + i - 1], value)
      end
    end
  end

  function record_of(queue)
    if not ctx.records[queue] then read_queues({queue}) end
    return ctx.records[queue]
  end
end

-- The users of a queue, and their rows. A row stands for a record where only URLs and blocks matter; `parent` is its queue's.
-- rows has them by user, once a script needs one; others: how many URLs are in rows.
local Users = {}

function Users.row_name(queue, user) return user == '' and queue or queue .. '|@' .. user end

-- Queue and user of a row's name; that of a queue is the row of ''.
function Users.split(name)
  local at = string.find(name, '|@', 1, true)
  if not at then return name, '' end
  return string.sub(name, 1, at - 1), string.sub(name, at + 2)
end

-- Has this queue URLs of others than the crawl itself, or had it when the script began?
function Users.are_in(r) return r.rows or (r[MORE] and r[MORE].users) end

function Users.new_row(r, user, n, blocks)
  return {queue = Users.row_name(r.queue, user), parent = r, user = user, listed = n, [N] = n, [BLOCKS] = blocks}
end

-- In the record: {URLs, block ids}, or only the number of URLs while there are no further blocks.
function Users.rows_of(r)
  if not r.rows then
    r.rows, r.others = {}, 0
    for user, of in pairs(r[MORE].users or {}) do
      local n, blocks = of, 0
      if type(of) == 'table' then n, blocks = of[1], of[2] end
      r.rows[user], r.others = Users.new_row(r, user, n, blocks), r.others + n
    end
  end
  return r.rows
end

-- Where the URLs of a user in this queue are: for '' the queue's own blocks.
function Users.place_in(r, user)
  if user == '' then return r end
  local rows = Users.rows_of(r)
  rows[user] = rows[user] or Users.new_row(r, user, 0, 0)
  return rows[user]
end

-- How many URLs are in the blocks of this queue or row itself.
function Users.own_n(r)
  if r.parent or not Users.are_in(r) then return r[N] end
  Users.rows_of(r)
  return r[N] - r.others
end

-- All users with URLs in this queue, by name.
function Users.waiting_in(r)
  local found, others = {''}, 0
  if r.rows then
    others = r.others
    for user, row in pairs(r.rows) do
      if row[N] > 0 then found[#found + 1] = user end
    end
  else
    for user, of in pairs(r[MORE].users or {}) do
      found[#found + 1], others = user, others + (type(of) == 'table' and of[1] or of)
    end
  end
  if r[N] == others then
    found[1] = found[#found]
    found[#found] = nil
  end
  if #found > 1 then table.sort(found) end
  return found
end

-- Put the rows into the record, and note what the users' counts change by.
function Users.pack_rows(r)
  local users = nil
  for user, row in pairs(r.rows) do
    if row[N] > 0 then
      users = users or {}
      users[user] = row[BLOCKS] == 0 and row[N] or {row[N], row[BLOCKS]}
    end
    if row[N] ~= row.listed then count(ctx.user_urls, user, row[N] - row.listed) end
    row.listed = row[N]
  end
  r[MORE].users = users
  if r[N] == 0 then r[MORE].turns = nil end
end

function Users.write_counts()
  local key, sum = ctx.prefix .. 'users', 0
  for user, n in pairs(ctx.user_urls) do
    if n ~= 0 and call('HINCRBY', key, user, n) == 0 then call('HDEL', key, user) end
    sum = sum + n
  end
  ctx.user_urls = {}
  meta().users = meta().users + sum
  if sum ~= 0 and call('HINCRBY', ctx.meta_key, 'users', sum) == 0 then call('HDEL', ctx.meta_key, 'users', 'turns') end
end

-- The queue, the row of a user, or the row of deferred URLs that has this name.
local function place_named(name)
  local queue, user = Users.split(name)
  return Users.place_in(record_of(queue), user)
end

-- A budget stops a queue for the crawl's own URLs. Those of users, which are of runs, are handed out all the same.
local Stops = {
  BUDGETS = {pages = true, bytes = true},
  RUNS = '*', -- in the place of a user: any whose URLs are of runs
}

function Stops.hold(r, user)
  local stop = r[MORE].stop
  return stop and (user == '' or not Stops.BUDGETS[stop])
end

-- How many URLs of a queue a stop defers.
function Stops.deferred_by(r, reason) return Stops.BUDGETS[reason] and Users.own_n(r) or r[N] end

-- How many URLs of the crawl itself were ever added to a queue: its budget is not for runs, nor for requisites.
function Users.own_urls(r) return r[URLS] - (r[MORE].run_urls or 0) - (r[MORE].requisites or 0) end

-- The set of due queues with a boost (nil and 0: none) in which a user has URLs.
local function ready_at(boost, user)
  local key = boost and boost ~= 0 and ctx.ready_key .. ':' .. boost or ctx.ready_key
  return user == '' and key or key .. '@' .. user
end

local leave_ready
do
  -- The set of a row, and for a queue that of ''.
  local function ready_of(r) return ready_at((r.parent or r)[MORE].boost, r.user or '') end

  function leave_ready(r) call('ZREM', ready_of(r), (r.parent or r).queue) end
end

local function delay_of(r) -- nil: no robots.txt was read for it
  local delay = r[DELAY]
  return delay >= 0 and delay or nil
end

local function set(r, word, value)
  r[word], (r.parent or r).is_changed = value, true
end

local function add_to(r, word, n) r[word], (r.parent or r).is_changed = r[word] + n, true end

-- n URLs came into the blocks of a queue or row; fewer than 0 left them.
local function add_urls(r, n)
  add_to(r, N, n)
  if r.parent then
    add_to(r.parent, N, n)
    r.parent.others = r.parent.others + n
  end
end

-- nil removes it.
local function set_more(r, name, value)
  r[MORE][name], r.is_changed = value, true
end

-- Set a queue's boost; its due time does not change.
local function change_boost(r, n)
  for _, user in ipairs(Users.waiting_in(r)) do
    local before = ready_at(r[MORE].boost, user)
    local due = call('ZSCORE', before, r.queue)
    call('ZREM', before, r.queue)
    if due then call('ZADD', ready_at(n, user), due, r.queue) end
  end
  set_more(r, 'boost', n ~= 0 and n or nil)
  if n == 0 then call('ZREM', ctx.prefix .. 'boosts', r.queue) else call('ZADD', ctx.prefix .. 'boosts', n, r.queue) end
  count(ctx.total, 'moves', 1)
end

local count_in
do
  local WORD_OF = {s2 = S2, bytes = BYTES, fetch_ms = FETCH_MS, out = OUT, retrying = RETRYING}

  -- Add n to a counter by name.
  function count_in(r, name, n)
    local word = WORD_OF[name]
    if word then return add_to(r, word, n) end
    local value = (r[MORE][name] or 0) + n
    set_more(r, name, value ~= 0 and value or nil)
  end
end

-- URLs that are no pages, and are bounded for themselves. Commits of theirs are of the class s9; CLASS: its number. Their order
-- is the least that a score can have (see _pending_url.lua), so all scores are below that bound.
local Requisites = {MARK = 'requisite', BEYOND = 'requisites', CLASS = 9, SCORES_BELOW = (1 - 2^31) * 2^21}

-- Count n requisites of a queue that are new to the crawl.
function Requisites.meet(r, n)
  count_in(r, 'requisites', n)
  count(ctx.total, 'requisites', n)
end

-- Count the bytes of a page or a requisite; fewer than 0 to take them back. Those of requisites are no part of what
-- budgets of bytes limit.
function Requisites.count_bytes(r, class, bytes)
  local name = class == Requisites.CLASS and 'requisite_bytes' or 'bytes'
  count(ctx.total, name, bytes)
  count_in(r, name, bytes)
end

-- Count a page of a run; n: -1 to take it back. run_pages counts those of all runs, also of closed ones; run_fetched (without
-- sitemaps) and run_bytes do, too, in meta and in the record of the queue: they are no part of what budgets limit.
local function count_page(r, seed, class, bytes, items, n)
  if type(seed) ~= 'string' then return end
  n = n or 1
  count(ctx.total, 'run_pages', n)
  for name, more in pairs({run_fetched = class >= 1 and n or 0, run_bytes = n * bytes}) do
    if more ~= 0 then
      count(ctx.total, name, more)
      count_in(r, name, more)
    end
  end
  if class >= 1 and class <= 5 then count_seed(seed, RunCounts.s1 + class - 1, n) end
  if class >= 1 then count_seed(seed, RunCounts.bytes, n * bytes) end -- a sitemap's are no part of what limits the run
  count_seed(seed, RunCounts.items, n * items)
end

-- When the next request of a queue may start: by its own clock, and by the politeness hold of a takeover (see
-- acquire.lua).
local function due_of(next_ms, delay_ms, hold_ms)
  if hold_ms and hold_ms + delay_ms > next_ms then return hold_ms + delay_ms end
  return next_ms
end

-- Make a sleeping queue that has URLs claimable. One with claims out stays asleep unless it has no delay.
local function wake(r, default_delay_ms) r.wakes = default_delay_ms end

-- A claim of a queue, or a request without one, has ended: move its clock, and make it claimable when no claim is out or it
-- has no delay. While its delay is unknown its due time here is a lower bound; claim checks again.
local function settle(r, next_ms, delay_ms)
  if not r.settled_from then r.settled_from = r[DELAY] end
  if next_ms > r[NEXT] then r[NEXT] = next_ms end
  if delay_ms >= 0 then r[DELAY] = delay_ms end
  r.is_changed = true
end

-- The record of a queue that may be idle now goes (back) to a store.
local function settle_idle(r)
  if r[N] == 0 then settle(r, 0, -1) end
end

local note_unanswered, note_answered
do
  -- A claim of this queue has ended without an answer (a name that does not exist, a closed port): the next call hands out one
  -- more, twice as many after a batch of such, so that those that are behind them do not wait. Each answer takes one off.
  local QUICK_MAX = 64

  function note_unanswered(r) set_more(r, 'quick', math.min(QUICK_MAX, (r[MORE].quick or 1) + 1)) end

  function note_answered(r)
    local quick = r[MORE].quick
    if quick then set_more(r, 'quick', quick > 2 and quick - 1 or nil) end
  end
end

local write_queues, compact, close_queues
do
  -- Where a changed queue goes: 'due' or 'woken' with its time, 'asleep', or nil when it stays where it is. A queue that woke
  -- is due now at the earliest, whatever its clock says: it goes behind those that have been due for longer, and the
  -- first of them tells for how long the oldest waits. Its own time alone counts when one of its claims ends.
  local function place_of(r, hold)
    if Stops.hold(r, Users.are_in(r) and Stops.RUNS or '') then return 'asleep' end
    local delay, is_out, settled_from = delay_of(r), r[OUT] ~= 0, r.settled_from
    if settled_from and is_out and delay ~= 0 then
      return settled_from == 0 and 'asleep' or nil -- it had no delay until now
    end
    if r[N] == 0 then return nil end
    if settled_from then return 'due', due_of(r[NEXT], delay or 0, hold) end
    if r.wakes then
      delay = delay or r.wakes
      if not is_out or delay == 0 then return 'woken', math.max(due_of(r[NEXT], delay, hold), meta().clock) end
    end
  end

  -- Does it have no URLs and no open request?
  local function is_idle(r)
    if r[N] ~= 0 or r[OUT] ~= 0 or r[RETRYING] ~= 0 or r[URLS] == 0 or r[MORE].aside then return false end
    return not r[MORE].borrower and (not r[MORE].waiter or r[MORE].waiter == GRANTED)
  end

  local function pack_record_of(r)
    return cmsgpack.pack({r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11]})
  end

  function write_queues()
    local changed, n = {}, 0
    for _, r in pairs(ctx.records) do
      if r.is_changed then
        if r.rows then Users.pack_rows(r) elseif r[N] == 0 then r[MORE].turns = nil end
        if r.is_row and r[N] == 0 then
          call('DEL', r.key)
        else
          changed[n + 1], changed[n + 2] = r.key, pack_record_of(r)
          n = n + 2
        end
        r.is_changed = false
      end
    end
    for i = 1, n, AT_ONCE do call('MSET', unpack(changed, i, math.min(i + AT_ONCE - 1, n))) end
    if next(ctx.user_urls) then Users.write_counts() end
  end

  -- Move the record of a queue whose clock ran out long ago to a store, if it is still idle.
  function compact(queue)
    call('ZREM', ctx.prefix .. 'idle', queue)
    local r = record_of(queue)
    if not is_idle(r) then return end
    r[NEXT] = 0
    compact_put('h', queue, pack_record_of(r))
    call('DEL', r.key)
    ctx.records[queue] = nil
  end

  local function note_move(moves, ready, place, at, queue)
    moves[ready] = moves[ready] or {due = {}, woken = {}, asleep = {}}
    local list = moves[ready][place]
    if at then list[#list + 1] = at end
    list[#list + 1] = queue
  end

  -- Write changed records, and move the queues in `ready`. Returns how many sleeping queues woke, for each of their users.
  function close_queues()
    local moves, idle, n = {}, {}, 0
    local hold = next(ctx.records) and meta().hold
    for queue, r in pairs(ctx.records) do
      local place, at = place_of(r, hold)
      if place and not Users.are_in(r) then
        local boost = r[MORE].boost
        note_move(moves, boost and ready_at(boost, '') or ctx.ready_key, place, at, queue)
      elseif place or r[MORE].stop then
        for _, user in ipairs(Users.waiting_in(r)) do
          local ready = ready_at(r[MORE].boost, user)
          if Stops.hold(r, user) then note_move(moves, ready, 'asleep', nil, queue)
          elseif place then note_move(moves, ready, place, at, queue) end
        end
      end
      if (r.settled_from or r.may_be_idle) and is_idle(r) then idle[#idle + 1], idle[#idle + 2] = r[NEXT], queue end
      r.settled_from, r.wakes, r.may_be_idle = nil, nil, nil
    end
    write_queues()
    run_many(idle, 'ZADD', ctx.prefix .. 'idle')
    for ready, of in pairs(moves) do
      run_many(of.asleep, 'ZREM', ready)
      run_many(of.due, 'ZADD', ready)
      n = n + run_many(of.woken, 'ZADD', ready, 'NX')
    end
    return n
  end
end
