-- The seen-set: 64-bit fingerprints in integer-set buckets that grow one at a time (linear hashing), so that every
-- bucket stays under the engine's set-max-intset-entries and no call moves more than a few hundred members.
-- Fingerprints are decimal strings: a Lua number has 53 bits; the bucket comes from the last nine digits.
local SEEN_PER_BUCKET = 200

-- The largest power of two that is not above the number of buckets.
local function level_of(buckets)
  local low = 1
  while low * 2 <= buckets do low = low * 2 end
  return low
end

local function bucket_of(fingerprint, buckets, low)
  local h = tonumber(string.sub(fingerprint, -9))
  local index = h % (low * 2)
  if index >= buckets then index = h % low end
  return index
end

local function split_one(seen, buckets)
  local low = level_of(buckets)
  local from, to = buckets - low, buckets
  local stay, move = {}, {}
  for _, fp in ipairs(call('SMEMBERS', seen .. from)) do
    if tonumber(string.sub(fp, -9)) % (low * 2) == to then move[#move + 1] = fp else stay[#stay + 1] = fp end
  end
  call('DEL', seen .. from) -- rebuilt, so that it is an integer set again whatever it had become
  if #stay > 0 then call('SADD', seen .. from, unpack(stay)) end
  if #move > 0 then call('SADD', seen .. to, unpack(move)) end
end

-- Run's seen-set has `count` members now: split buckets until the load is right again.
local function seen_grow(run, buckets, count)
  local seen, before = P .. 's' .. run .. ':', buckets
  while count > SEEN_PER_BUCKET * buckets do
    split_one(seen, buckets)
    buckets = buckets + 1
  end
  if buckets ~= before then call('HSET', M, 'buckets' .. run, buckets) end
end
