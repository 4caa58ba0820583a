-- The seen-set: 64-bit fingerprints in integer-set buckets that grow one at a time (see _buckets.lua), so that every bucket
-- stays under the engine's set-max-intset-entries and no call moves more than a thousand members. The engine stores
-- such a set in eight bytes a member, and a larger one in five to ten times as much: 8 to 11 bytes a URL were measured.
-- Between two doublings, buckets that were not split yet hold up to twice the average: 400, under the bound of 512. The
-- set is exact up to a collision of fingerprints. The run is a part of their salt, so each run has a seen-set of its
-- own.
-- Fingerprints are decimal strings: a Lua number has 53 bits; the bucket comes from the last nine digits.
-- s<run>:<bucket>: the members; z<run>:<bucket>: hash fingerprint -> depth of those that are pending (see _add.lua).
local function seen_set(run)
  local seen = ctx.seen_sets[run]
  if not seen then
    local v = call('HMGET', ctx.meta_key, 'buckets' .. run, 'split' .. run)
    seen = buckets_named(run, 'buckets' .. run, v[1], v[2])
    seen.members, seen.depths = ctx.prefix .. 's' .. run .. ':', ctx.prefix .. 'z' .. run .. ':'
    ctx.seen_sets[run] = seen
  end
  return seen
end

local function seen_index(seen, fingerprint)
  return bucket_at(tonumber(string.sub(fingerprint, -9)), seen.n, seen.low)
end

local function is_seen(seen, fingerprint)
  local index = seen_index(seen, fingerprint)
  return call('SISMEMBER', seen.members .. index, fingerprint) == 1
    or (is_moving(seen, index) and call('SISMEMBER', seen.members .. 'split', fingerprint) == 1)
end

-- Add a fingerprint; true when it was new. Every link passes here, so bucket_at and is_moving are inlined.
local function see(seen, fingerprint)
  local low = seen.low
  local index = tonumber(string.sub(fingerprint, -9)) % (low * 2)
  if index >= seen.n then index = index % low end
  if seen.is_splitting and (index == seen.to or index == seen.from) then
    if call('SISMEMBER', seen.members .. 'split', fingerprint) == 1 then return false end
  end
  return call('SADD', seen.members .. index, fingerprint) == 1
end

local function unsee(seen, fingerprint)
  local index = seen_index(seen, fingerprint)
  call('SREM', seen.members .. index, fingerprint)
  if is_moving(seen, index) then call('SREM', seen.members .. 'split', fingerprint) end
end

-- The hash for the depth of a fingerprint.
local function depths_of(seen, fingerprint)
  local index = seen_index(seen, fingerprint)
  local is_old = is_moving(seen, index) and call('HEXISTS', seen.depths .. 'split', fingerprint) == 1
  return seen.depths .. (is_old and 'split' or index)
end

local seen_grow
do
  local SEEN_PER_BUCKET = 200
  local SPLITS_MAX = 8 -- a call

  -- A run's seen-set has `count` members now: split buckets until their load is right, within the limits of one call. The last
  -- step of a script.
  function seen_grow(run, count)
    local seen = seen_set(run)
    local function index_of(fingerprint) return seen_index(seen, fingerprint) end
    local function move(prefix, ...) return ctx.moves_left > 0 and move_some(seen, prefix, ctx.moves_left, index_of, ...) end
    for _ = 1, SPLITS_MAX do
      if not seen.is_splitting then
        if count <= SEEN_PER_BUCKET * seen.n or ctx.moves_left < MOVES_MAX / 2 then return end
        begin_split(seen, {seen.members, seen.depths})
      end
      if not move(seen.members, 'SRANDMEMBER', nil, 'SADD', 'SREM') then return end
      if not move(seen.depths, 'HRANDFIELD', 'WITHVALUES', 'HSET', 'HDEL') then return end
      end_split(seen)
    end
  end
end
