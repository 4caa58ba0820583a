-- Queues and their politeness clocks: w:<queue> holds next (ms), delay (ms), out (claims handed out); and while a
-- guest has a turn (see reserve): guest (its mark), guest_seen (when the owner first saw that, ms); and wish: the guest
-- that waits for a turn, or SERVED from when one was granted until the owner has had its own.
-- ready: zset of queues that have URLs and may be claimed from, by due time (ms on the partition clock).

-- When a queue may be asked next: its own clock, and the hold that a takeover put on the whole partition.
local function due_of(next_ms, delay_ms, hold_ms)
  local due = next_ms or 0
  if hold_ms and hold_ms + delay_ms > due then due = hold_ms + delay_ms end
  return due
end

local GUEST_MS = 20000 -- so long after its turn was granted a guest's request may begin: look-up and connecting

local function done_mark(guest) return 'done ' .. guest end
local function is_done(mark) return string.sub(mark, 1, 5) == 'done ' end

-- When the owner may start a request on a queue with a guest's mark (ms), as far as it knows now. Only the owner has the
-- partition's time: guests know a lower bound. So it is the owner who books their requests, when it first sees them.
local function guest_until(queue, mark, seen_ms, now, delay_ms, next_ms)
  local key = P .. 'w:' .. queue
  if is_done(mark) or (seen_ms and now - seen_ms >= GUEST_MS) then
    call('HDEL', key, 'guest', 'guest_seen')
    call('HSET', key, 'next', math.max(next_ms or 0, now + delay_ms))
    return now + delay_ms
  end
  if not seen_ms then call('HSET', key, 'guest_seen', now) end
  return now + 1000
end

local WISH_MS = 2500 -- so long the owner leaves a queue that is due to the guest who waits for it; guests ask each second
local SERVED = '-'

-- When the owner may start a request on a queue that is due and that a guest wishes for (ms): without this, a guest would
-- never be quicker than an owner who has work for the queue.
local function wish_until(queue, seen_ms, now)
  local key = P .. 'w:' .. queue
  if seen_ms and now - seen_ms >= WISH_MS then
    call('HDEL', key, 'wish', 'guest_seen')
    return now
  end
  if not seen_ms then call('HSET', key, 'guest_seen', now) end
  return (seen_ms or now) + WISH_MS
end

-- Make a queue that has URLs claimable; 1 if it was asleep. A queue with claims out stays asleep unless it has no delay.
local function wake(queue, default_delay_ms)
  local w = call('HMGET', P .. 'w:' .. queue, 'next', 'delay', 'out')
  local delay = tonumber(w[2] or nil) or default_delay_ms
  if (tonumber(w[3] or nil) or 0) > 0 and delay > 0 then return 0 end
  local hold = tonumber(call('HGET', M, 'hold') or nil)
  return call('ZADD', P .. 'ready', 'NX', due_of(tonumber(w[1] or nil), delay, hold), queue)
end

-- n claims of a queue have ended (0: a request without one): move its clock, and make it claimable when none is out or
-- it has no delay. While its delay is unknown its due time here is a lower bound; claim looks again.
local function settle(queue, n, next_ms, delay_ms)
  local key = P .. 'w:' .. queue
  local w = call('HMGET', key, 'next', 'delay', 'out')
  local out = (tonumber(w[3] or nil) or 0) - n
  local next_fetch = math.max(tonumber(w[1] or nil) or 0, next_ms)
  local delay = delay_ms >= 0 and delay_ms or tonumber(w[2] or nil)
  if delay then
    call('HSET', key, 'out', out, 'next', next_fetch, 'delay', delay)
  else
    call('HSET', key, 'out', out, 'next', next_fetch)
  end
  if out > 0 and delay ~= 0 then
    if w[2] == '0' then call('ZREM', P .. 'ready', queue) end -- it has a delay from now on
  elseif call('EXISTS', P .. 'q:' .. queue) == 1 then
    local hold = tonumber(call('HGET', M, 'hold') or nil)
    call('ZADD', P .. 'ready', due_of(next_fetch, delay or 0, hold), queue)
  end
end
