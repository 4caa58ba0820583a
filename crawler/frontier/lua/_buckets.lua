-- Buckets that split one at a time (linear hashing), for seen-sets and stores: to double all of them at once is work
-- without a bound, in the middle of an ack. The number of buckets is the only state; they split in a fixed order, one
-- each time that the average load passes its bound. meta's split<name> exists while the values of a bucket are moved:
-- they wait under the bucket's prefix and the word 'split', and go to the old bucket or to the new one, at most
-- MOVES_MAX in one call. So a bucket may hold any number, and no call is long. A random sample of the rest needs no
-- cursor, which means nothing after a failover. Everything is written before it is deleted: an error in a script rolls
-- nothing back. Before hashes had a key (rules/places.py), 26,000 URLs that a site made for one bucket were deleted by
-- a split whose next command was too long.

local bucket_at, buckets_named, is_moving, begin_split
do
  -- low, the largest power of two that is not above the number of buckets. A value is in the bucket of its number modulo
  -- 2 * low, or modulo low while that bucket does not exist. So a new bucket takes its values from the bucket `low` places
  -- before it, and no other value moves.
  local function level_of(buckets)
    local low = 1
    while low * 2 <= buckets do low = low * 2 end
    return low
  end

  function bucket_at(number, buckets, low)
    local index = number % (low * 2)
    return index < buckets and index or number % low
  end

  -- Set the number of buckets to n. While it is splitting, the last bucket takes values from bucket b.from.
  local function set_buckets(b, n, is_splitting)
    b.n, b.low, b.is_splitting = n, level_of(n), is_splitting
    b.to, b.from = n - 1, n - 1 - level_of(n - 1)
    return b
  end

  -- The buckets with a name. field: their number in meta.
  function buckets_named(name, field, n, split)
    return set_buckets({field = field, split = 'split' .. name}, tonumber(n or nil) or 1, split ~= false)
  end

  -- May a value of this bucket still wait to be moved?
  function is_moving(b, index) return b.is_splitting and (index == b.from or index == b.to) end

  -- Add a bucket. The values of the one that splits are under 'split' from now on.
  function begin_split(b, prefixes)
    set_buckets(b, b.n + 1, true)
    call('HSET', ctx.meta_key, b.field, b.n, b.split, 1)
    for _, prefix in ipairs(prefixes) do
      if call('EXISTS', prefix .. b.from) == 1 then call('RENAME', prefix .. b.from, prefix .. 'split') end
    end
  end
end

local function end_split(b)
  call('HDEL', ctx.meta_key, b.split)
  b.is_splitting = false
end

-- Move at most `most` of the values under <prefix>split; true when nothing is left. take: the command that reads some of them,
-- with its flag, if it has one: then each is a name and a value. put, drop: the commands that write values and remove names.
local function move_some(b, prefix, most, index_of, take, flag, put, drop)
  local old, targets, names = prefix .. 'split', {[b.from] = {}, [b.to] = {}}, {}
  local found = flag and call(take, old, most, flag) or call(take, old, most)
  for i = 1, #found, flag and 2 or 1 do
    local list = targets[index_of(found[i])]
    list[#list + 1], names[#names + 1] = found[i], found[i]
    if flag then list[#list + 1] = found[i + 1] end
  end
  for index, list in pairs(targets) do run_many(list, put, prefix .. index) end
  ctx.moves_left = ctx.moves_left - #names
  if #names < most then
    call('DEL', old) -- the common case: everything was moved
    return true
  end
  run_many(names, drop, old)
  return call('EXISTS', old) == 0
end
