-- Queues. w:<queue> is the record of one, msgpack: numbers in the order below, and a map of whatever else there is.
-- next (ms), delay (ms, -1 unknown) and out (claims handed out) are its politeness clock; n URLs are in its blocks (see
-- _block.lua; blocks: how many ids were given to those), others retrying. Counted are urls (ever added), s2 (pages), bytes,
-- fetch_ms and in the map s1, s3 ..., retries, dead, e:<failure>, refused:<reason>. There, too: domain, if that is not its
-- own name; while a guest has a turn (see reserve), guest (its mark) and guest_seen (when the owner first saw that, ms); and
-- stop: why none of its URLs is handed out; free:<reason>: it is not parked again for that (see _park.lua, park.lua); and
-- wish: the guest that waits for a turn, or SERVED from when one was granted until the owner has had its own. While a queue
-- is idle its record lies on a shelf, with others.
-- ready: zset of queues that have URLs and may be claimed from, by due time (ms on the partition clock). Those with a boost
-- (a whole number but 0, in the map) are in ready:<boost> instead, so that none is looked for among others. boosts: zset of
-- such queues by boost; meta's boosts lists the boosts there are, highest first.
-- idle: zset of queues that may be idle, by when their clock runs out.
-- A script reads a record once, changes it here, and writes it once, by close_queues.
local NEXT, DELAY, OUT, N, RETRYING, BLOCKS, URLS, S2, BYTES, FETCH_MS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local WORD_OF = {s2 = S2, bytes = BYTES, fetch_ms = FETCH_MS}
local IDLE_MS = 60000 -- after its clock has run out an idle queue's record goes to a shelf
local SERVED = '-'
local records = {}

local function record_of(queue)
  local r = records[queue]
  if r then return r end
  local key = P .. 'w:' .. queue
  local packed = call('GET', key)
  if not packed then
    packed = shelf_get('h', queue)
    if packed then
      call('SET', key, packed)
      shelf_drop('h', queue)
    end
  end
  local v = packed and cmsgpack.unpack(packed) or {0, -1, 0, 0, 0, 0, 0, 0, 0, 0, {}}
  r = {v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], queue = queue, key = key, more = v[11]}
  records[queue] = r
  return r
end

local function pack_record_of(r)
  return cmsgpack.pack({r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r.more})
end

local READY = P .. 'ready'

local function ready_of(r)
  local boost = r.more.boost
  return boost and READY .. ':' .. boost or READY
end

local function delay_of(r) -- nil: no robots.txt was read for it
  local delay = r[DELAY]
  return delay >= 0 and delay or nil
end

local function set(r, word, value)
  r[word], r.is_changed = value, true
end

local function add_to(r, word, n) r[word], r.is_changed = r[word] + n, true end

-- nil removes it.
local function set_more(r, name, value)
  r.more[name], r.is_changed = value, true
end

-- A counter by name.
local function count_in(r, name, n)
  local word = WORD_OF[name]
  if word then add_to(r, word, n) else set_more(r, name, (r.more[name] or 0) + n) end
end

-- When a queue may be asked next: its own clock, and the hold that a takeover put on the whole partition.
local function due_of(next_ms, delay_ms, hold_ms)
  if hold_ms and hold_ms + delay_ms > next_ms then return hold_ms + delay_ms end
  return next_ms
end

-- Make a queue that has URLs claimable, if it is asleep. One with claims out stays asleep unless it has no delay.
local function wake(r, default_delay_ms) r.wakes = default_delay_ms end

-- n claims of a queue have ended (0: a request without one): move its clock, and make it claimable when none is out or
-- it has no delay. While its delay is unknown its due time here is a lower bound; claim looks again.
local function settle(r, n, next_ms, delay_ms)
  if not r.is_settled then r.is_settled, r.had_no_delay = true, r[DELAY] == 0 end
  r[OUT] = r[OUT] - n
  if next_ms > r[NEXT] then r[NEXT] = next_ms end
  if delay_ms >= 0 then r[DELAY] = delay_ms end
  r.is_changed = true
end

-- Where a changed queue goes: 'due' and its time, 'asleep', or nil when it stays where it is.
local function place_of(r, hold)
  if r.more.stop then return 'asleep' end
  local delay, is_out = delay_of(r), r[OUT] ~= 0
  if r.is_settled and is_out and delay ~= 0 then
    return r.had_no_delay and 'asleep' or nil -- it has a delay from now on
  end
  if r[N] == 0 then return nil end
  if r.is_settled then return 'due', due_of(r[NEXT], delay or 0, hold) end
  if r.wakes then
    delay = delay or r.wakes
    if not is_out or delay == 0 then return 'woken', due_of(r[NEXT], delay, hold) end
  end
end

-- Nobody has work for it, or is at it.
local function is_idle(r)
  if r[N] ~= 0 or r[OUT] ~= 0 or r[RETRYING] ~= 0 or r[URLS] == 0 then return false end
  return not r.more.guest and (not r.more.wish or r.more.wish == SERVED)
end

local function write_queues()
  for _, r in pairs(records) do
    if r.is_changed then
      if r.is_row and r[N] == 0 then call('DEL', r.key) else call('SET', r.key, pack_record_of(r)) end
      r.is_changed = false
    end
  end
end

-- A queue's clock has run out long ago: if it is idle still, its record goes to a shelf.
local function shelve(queue)
  call('ZREM', P .. 'idle', queue)
  local r = record_of(queue)
  if not is_idle(r) then return end
  r[NEXT] = 0
  shelf_put('h', queue, pack_record_of(r))
  call('DEL', r.key)
  records[queue] = nil
end

-- Some hundred arguments at a time: unpack takes a few thousand at most.
local function run_many(list, ...)
  local done = 0
  for i = 1, #list, 1000 do
    local command = {...}
    for j = i, math.min(i + 999, #list) do command[#command + 1] = list[j] end
    done = done + call(unpack(command))
  end
  return done
end

-- Write what was changed, and move the queues in `ready`; how many sleeping ones woke.
local function close_queues()
  local moves, idle, n = {}, {}, 0
  local hold = next(records) and meta().hold
  for queue, r in pairs(records) do
    local place, at = place_of(r, hold)
    if place then
      local ready = ready_of(r)
      moves[ready] = moves[ready] or {due = {}, woken = {}, asleep = {}}
      local list = moves[ready][place]
      if at then list[#list + 1] = at end
      list[#list + 1] = queue
    end
    if r.is_settled and is_idle(r) then idle[#idle + 1], idle[#idle + 2] = r[NEXT], queue end
    r.is_settled, r.wakes = nil, nil
  end
  write_queues()
  run_many(idle, 'ZADD', P .. 'idle')
  for ready, of in pairs(moves) do
    run_many(of.asleep, 'ZREM', ready)
    run_many(of.due, 'ZADD', ready)
    n = n + run_many(of.woken, 'ZADD', ready, 'NX')
  end
  return n
end
