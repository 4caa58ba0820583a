-- Buckets that split one at a time (linear hashing): those of seen-sets and of stores. Meta's split<name> is there while the
-- values of a bucket are moved: they wait under the bucket's prefix and the word 'split', and go to the bucket that they came
-- from or to the new one, at most MOVES_MAX in all that a call does. So a bucket may hold any number, and no call is long.
-- Everything is written before it is deleted: an error of a script rolls nothing back.
local MOVES_MAX = 1000
local moves_left
--@each moves_left = MOVES_MAX

-- So many buckets, and low, the largest power of two that is not above that. A value lies in the bucket of its number modulo
-- 2 * low, or modulo low while there is no such bucket yet. So the next one takes its values from the bucket `low` before
-- it, and no other moves.
local function level_of(buckets)
  local low = 1
  while low * 2 <= buckets do low = low * 2 end
  return low
end

local function bucket_at(number, buckets, low)
  local index = number % (low * 2)
  return index < buckets and index or number % low
end

-- n buckets, of which the last one may be taking its values from the one before.
local function set_buckets(b, n, is_splitting)
  b.n, b.low, b.is_splitting = n, level_of(n), is_splitting
  b.to, b.from = n - 1, n - 1 - level_of(n - 1)
  return b
end

-- Buckets of a name; field: where meta counts them.
local function buckets_named(name, field, n, split)
  return set_buckets({field = field, split = 'split' .. name}, tonumber(n or nil) or 1, split ~= false)
end

-- May a value of this bucket still wait to be moved?
local function is_moving(b, index) return b.is_splitting and (index == b.from or index == b.to) end

-- One bucket more. What was in the one that splits is found under 'split' from here on.
local function begin_split(b, prefixes)
  set_buckets(b, b.n + 1, true)
  call('HSET', M, b.field, b.n, b.split, 1)
  for _, prefix in ipairs(prefixes) do
    if call('EXISTS', prefix .. b.from) == 1 then call('RENAME', prefix .. b.from, prefix .. 'split') end
  end
end

local function end_split(b)
  call('HDEL', M, b.split)
  b.is_splitting = false
end

-- Move at most `most` of what waits under a prefix; true when nothing is left. take: the command that reads some of it, with
-- its flag, if it has one: then each is a name and a value. put, drop: those that write it and remove names.
local function move_some(b, prefix, most, index_of, take, flag, put, drop)
  local old, targets, names = prefix .. 'split', {[b.from] = {}, [b.to] = {}}, {}
  local found = flag and call(take, old, most, flag) or call(take, old, most)
  for i = 1, #found, flag and 2 or 1 do
    local list = targets[index_of(found[i])]
    list[#list + 1], names[#names + 1] = found[i], found[i]
    if flag then list[#list + 1] = found[i + 1] end
  end
  for index, list in pairs(targets) do run_many(list, put, prefix .. index) end
  moves_left = moves_left - #names
  if #names < most then
    call('DEL', old) -- the common case, and all of it was moved
    return true
  end
  run_many(names, drop, old)
  return call('EXISTS', old) == 0
end
