-- The partition's prefix, its clock and its fence. Included by every script of a partition.
-- KEYS[1] is the partition's meta hash '{crawl:partition}:m'; every other key is built from its prefix, so that all
-- keys of a script lie in one slot.
local call = redis.call
local M = KEYS[1]
local P = string.sub(M, 1, -2)

-- True when (session, epoch) holds the lease; then the partition clock is carried on to now_ms (never back).
local function fence(session, epoch, now_ms)
  local lease = call('HMGET', M, 'session', 'epoch', 'clock')
  if session == '' or lease[1] ~= session or lease[2] ~= epoch then return false end
  if now_ms > (tonumber(lease[3]) or 0) then call('HSET', M, 'clock', now_ms) end
  return true
end

-- Add to counters of a hash, given as {field, n, field, n, ...}; the new values, in that order.
local function bump(key, changes)
  local names, values, pairs_ = {}, {}, {}
  for i = 1, #changes, 2 do names[#names + 1] = changes[i] end
  local known = call('HMGET', key, unpack(names))
  for i, name in ipairs(names) do
    values[i] = (tonumber(known[i] or nil) or 0) + changes[2 * i]
    pairs_[2 * i - 1], pairs_[2 * i] = name, values[i]
  end
  call('HSET', key, unpack(pairs_))
  return values
end
