-- Scheduled URLs: they become visible at a wall time, and wait in the zset at, 'score queue member' -> that time (ms).
-- They are pending, and in no block of their queue: so it may be idle, and its record packed. The record's at, and meta's
-- scheduled, count them. `claim` moves those that are due into their queues.
local function schedule(r, score, member, at_ms)
  call('ZADD', ctx.prefix .. 'at', at_ms, score .. ' ' .. r.queue .. ' ' .. member)
  enter(State.SCHEDULED, r)
  r.may_be_idle = true
end

-- score (text), queue, member
local function unpack_scheduled(stored) return string.match(stored, '^(%S+) (%S+) (.*)$') end

-- Take a URL out of the zset; false when it is not there.
local function unschedule(r, stored)
  if call('ZREM', ctx.prefix .. 'at', stored) == 0 then return false end
  leave(State.SCHEDULED, r)
  return true
end
