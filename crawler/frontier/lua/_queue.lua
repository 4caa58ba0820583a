-- Queues. w:<queue> is the record of one. Its politeness clock: next (ms), delay (ms), out (claims handed out); while a
-- guest has a turn (see reserve), guest (its mark) and guest_seen (when the owner first saw that, ms); and wish: the guest
-- that waits for a turn, or SERVED from when one was granted until the owner has had its own. What it has: n URLs in blocks
-- (see _block.lua), blocks (how many ids were given to blocks), retrying; domain, if that is not its own name. What was
-- counted: urls (ever added), s1 ... s5, bytes, fetch_ms, retries, dead, e:<failure>, refused:<reason>.
-- ready: zset of queues that have URLs and may be claimed from, by due time (ms on the partition clock).
-- While a queue is idle its record lies packed on a shelf (see _idle.lua).
-- A script reads a record once, changes it here, and writes it once, by close_queues.
local NAMES = {'next', 'delay', 'out', 'n', 'retrying', 'urls', 'blocks', 'guest_seen', 'bytes', 'fetch_ms', 's2',
  'guest', 'wish', 'domain'}
local IS_NUMBER = {}
for i = 1, 11 do IS_NUMBER[NAMES[i]] = true end
local records = {}

local function number(v) return v and tonumber(v) or nil end

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

local function record_of(queue)
  local r = records[queue]
  if r then return r end
  local key = P .. 'w:' .. queue
  local v = call('HMGET', key, unpack(NAMES))
  if not v[6] then
    local packed = shelf_get('h', queue)
    if packed then
      call('HSET', key, unpack(unpack_queue(packed)))
      shelf_drop('h', queue)
      v = call('HMGET', key, unpack(NAMES))
    end
  end
  r = {
    queue = queue, key = key, dirty = {}, more = {},
    next = number(v[1]), delay = number(v[2]), out = number(v[3]) or 0, n = number(v[4]) or 0,
    retrying = number(v[5]) or 0, urls = number(v[6]) or 0, blocks = number(v[7]), guest_seen = number(v[8]),
    bytes = number(v[9]) or 0, fetch_ms = number(v[10]) or 0, s2 = number(v[11]) or 0,
    guest = v[12] or nil, wish = v[13] or nil, domain = v[14] or nil,
  }
  records[queue] = r
  return r
end

-- nil removes the field.
local function set(r, name, value)
  r[name] = value
  r.dirty[name] = true
end

local function add_to(r, name, n)
  if IS_NUMBER[name] then set(r, name, (r[name] or 0) + n) else count(r.more, name, n) end
end

-- When a queue may be asked next: its own clock, and the hold that a takeover put on the whole partition.
local function due_of(next_ms, delay_ms, hold_ms)
  local due = next_ms or 0
  if hold_ms and hold_ms + delay_ms > due then due = hold_ms + delay_ms end
  return due
end

-- Make a queue that has URLs claimable, if it is asleep. One with claims out stays asleep unless it has no delay.
local function wake(r, default_delay_ms) r.wakes = default_delay_ms end

-- n claims of a queue have ended (0: a request without one): move its clock, and make it claimable when none is out or
-- it has no delay. While its delay is unknown its due time here is a lower bound; claim looks again.
local function settle(r, n, next_ms, delay_ms)
  if r.had_delay == nil then r.had_delay = r.delay ~= 0 end
  set(r, 'out', r.out - n)
  set(r, 'next', math.max(r.next or 0, next_ms))
  if delay_ms >= 0 then set(r, 'delay', delay_ms) end
  r.is_settled = true
end

-- Where a changed queue goes: 'due' and its time, 'asleep', or nil when it stays where it is.
local function place_of(r, hold)
  local is_held_up = r.out > 0 and r.delay ~= 0
  if r.is_settled and is_held_up and not r.had_delay then return 'asleep' end -- it has a delay from now on
  if r.n == 0 then return nil end
  if r.is_settled then
    if not is_held_up then return 'due', due_of(r.next, r.delay or 0, hold) end
  elseif r.wakes then
    local delay = r.delay or r.wakes
    if r.out == 0 or delay == 0 then return 'woken', due_of(r.next, delay, hold) end
  end
end

-- Nobody has work for it, or is at it.
local function is_idle(r)
  return r.n == 0 and r.out == 0 and r.retrying == 0 and r.urls > 0 and not r.guest and (not r.wish or r.wish == '-')
end

local function write_record(r)
  local flat, gone = {}, {}
  for name in pairs(r.dirty) do
    local value = r[name]
    if value == nil then gone[#gone + 1] = name else flat[#flat + 1], flat[#flat + 2] = name, value end
  end
  local names = {}
  for name in pairs(r.more) do names[#names + 1] = name end
  if #names > 0 then
    local known = call('HMGET', r.key, unpack(names))
    for i, name in ipairs(names) do
      flat[#flat + 1], flat[#flat + 2] = name, (tonumber(known[i] or nil) or 0) + r.more[name]
    end
  end
  if #gone > 0 then call('HDEL', r.key, unpack(gone)) end
  if #flat > 0 then call('HSET', r.key, unpack(flat)) end
  r.dirty, r.more = {}, {}
end

-- A queue's clock has run out long ago: if it is idle still, its record is packed.
local function shelve(queue)
  call('ZREM', P .. 'idle', queue)
  local r = record_of(queue)
  if not is_idle(r) then return end
  shelf_put('h', queue, pack_queue(queue))
  call('DEL', r.key)
  records[queue] = nil
end

local function write_queues()
  for _, r in pairs(records) do
    if next(r.dirty) or next(r.more) then write_record(r) end
  end
end

-- Write what was changed, and move the queues in `ready`; how many sleeping ones woke.
local function close_queues()
  local lists, asleep, idle = {due = {}, woken = {}}, {}, {}
  local hold = number(call('HGET', M, 'hold'))
  write_queues()
  for queue, r in pairs(records) do
    local place, due = place_of(r, hold)
    if place == 'asleep' then
      asleep[#asleep + 1] = queue
    elseif place then
      local list = lists[place]
      list[#list + 1], list[#list + 2] = due, queue
    end
    if r.is_settled and is_idle(r) then idle[#idle + 1], idle[#idle + 2] = r.next or 0, queue end
    r.is_settled, r.had_delay, r.wakes = nil, nil, nil
  end
  run_many(asleep, 'ZREM', P .. 'ready')
  run_many(lists.due, 'ZADD', P .. 'ready')
  run_many(idle, 'ZADD', P .. 'idle')
  return run_many(lists.woken, 'ZADD', P .. 'ready', 'NX')
end
