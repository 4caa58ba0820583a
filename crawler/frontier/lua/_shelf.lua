-- Shelves: very many small values by name, in hashes that stay small enough to be packed: <kind>:<bucket>. They grow one
-- bucket at a time, as the seen-set does. Meta's <kind>n and <kind>b count values and buckets.
-- Kinds: h, the records of idle queues; y, robots.txt by origin; n, hosts that a budget took in.
local PER_SHELF = 64
local shelf_sizes
--@each shelf_sizes = {}

-- Linear hashing: so many buckets, and low, the largest power of two that is not above that. A value lies in the bucket of its
-- hash modulo 2 * low, or modulo low while there is no such bucket yet. So the next one takes its values from the bucket `low`
-- before it, and no other moves.
local function level_of(buckets)
  local low = 1
  while low * 2 <= buckets do low = low * 2 end
  return low
end

local function bucket_at(hash, buckets, low)
  local index = hash % (low * 2)
  return index < buckets and index or hash % low
end

local function shelf_number(name) return tonumber(string.sub(redis.sha1hex(name), 1, 8), 16) end

-- {how many values, how many buckets} of a kind.
local function shelf_size(kind)
  if not shelf_sizes[kind] then
    local v = call('HMGET', M, kind .. 'n', kind .. 'b')
    shelf_sizes[kind] = {tonumber(v[1] or nil) or 0, tonumber(v[2] or nil) or 1}
  end
  return shelf_sizes[kind]
end

local function shelf_key(kind, name)
  local buckets = shelf_size(kind)[2]
  return P .. kind .. ':' .. bucket_at(shelf_number(name), buckets, level_of(buckets))
end

local function shelf_get(kind, name)
  if shelf_size(kind)[1] == 0 then return nil end
  return call('HGET', shelf_key(kind, name), name) or nil
end

local function shelf_write_size(kind)
  local size = shelf_size(kind)
  call('HSET', M, kind .. 'n', size[1], kind .. 'b', size[2])
end

local function shelf_drop(kind, name)
  local size = shelf_size(kind)
  size[1] = size[1] - call('HDEL', shelf_key(kind, name), name)
  shelf_write_size(kind)
end

local function split_shelf(kind, buckets)
  local low = level_of(buckets + 1)
  local from, to = P .. kind .. ':' .. (buckets - level_of(buckets)), P .. kind .. ':' .. buckets
  local found, stay, move = call('HGETALL', from), {}, {}
  for i = 1, #found, 2 do
    local list = bucket_at(shelf_number(found[i]), buckets + 1, low) == buckets and move or stay
    list[#list + 1], list[#list + 2] = found[i], found[i + 1]
  end
  call('DEL', from) -- rebuilt, so that it is packed again whatever it had become
  if #stay > 0 then call('HSET', from, unpack(stay)) end
  if #move > 0 then call('HSET', to, unpack(move)) end
end

local function shelf_put(kind, name, value)
  local size = shelf_size(kind)
  size[1] = size[1] + call('HSET', shelf_key(kind, name), name, value)
  if size[1] > PER_SHELF * size[2] then
    split_shelf(kind, size[2])
    size[2] = size[2] + 1
  end
  shelf_write_size(kind)
end
