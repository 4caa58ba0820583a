-- The seen-set: 64-bit fingerprints in integer-set buckets that grow one at a time (linear hashing, see _shelf.lua), so that
-- every bucket stays under the engine's set-max-intset-entries and no call moves more than a few hundred members.
-- Fingerprints are decimal strings: a Lua number has 53 bits; the bucket comes from the last nine digits.
local SEEN_PER_BUCKET = 200

-- How many buckets a run's seen-set has, read once.
local seen_buckets
--@each seen_buckets = {}
local function buckets_of(run)
  if not seen_buckets[run] then seen_buckets[run] = tonumber(call('HGET', M, 'buckets' .. run) or nil) or 1 end
  return seen_buckets[run]
end

local function bucket_of(fingerprint, buckets, low)
  return bucket_at(tonumber(string.sub(fingerprint, -9)), buckets, low)
end

local function split_one(seen, buckets)
  local low = level_of(buckets + 1)
  local from, to = buckets - level_of(buckets), buckets
  local stay, move = {}, {}
  for _, fp in ipairs(call('SMEMBERS', seen .. from)) do
    if bucket_of(fp, buckets + 1, low) == to then move[#move + 1] = fp else stay[#stay + 1] = fp end
  end
  call('DEL', seen .. from) -- rebuilt, so that it is an integer set again whatever it had become
  if #stay > 0 then call('SADD', seen .. from, unpack(stay)) end
  if #move > 0 then call('SADD', seen .. to, unpack(move)) end
end

-- The depths of pending URLs (see _add.lua) lie in buckets of the same numbers.
local function split_depths(depths, buckets)
  local low = level_of(buckets + 1)
  local from, to = depths .. (buckets - level_of(buckets)), buckets
  local found, moved, names = call('HGETALL', from), {}, {}
  for i = 1, #found, 2 do
    if bucket_of(found[i], buckets + 1, low) == to then
      moved[#moved + 1], moved[#moved + 2], names[#names + 1] = found[i], found[i + 1], found[i]
    end
  end
  if #names > 0 then
    call('HSET', depths .. to, unpack(moved))
    call('HDEL', from, unpack(names))
  end
end

-- Run's seen-set has `count` members now: split buckets until the load is right again. The last that a script does.
local function seen_grow(run, count)
  local seen, before = P .. 's' .. run .. ':', buckets_of(run)
  local buckets = before
  while count > SEEN_PER_BUCKET * buckets do
    split_one(seen, buckets)
    split_depths(P .. 'z' .. run .. ':', buckets)
    buckets = buckets + 1
  end
  if buckets ~= before then call('HSET', M, 'buckets' .. run, buckets) end
end
