-- The ends of a claim. x: zset token -> visibility deadline (ms).

-- Is this delivery still the one that counts? A token begins with the epoch it was handed out under: those of earlier
-- leases count as expired, also while they wait to be put back.
local function is_claimed(token, epoch)
  return string.sub(token, 1, #epoch + 1) == epoch .. '.' and call('ZSCORE', P .. 'x', token) ~= false
end

-- These URLs are pending no more. k: hash fingerprint -> deaths of processes that were at it; z: see _add.lua.
local function forget(run, fingerprints, is_limited)
  if call('EXISTS', P .. 'k') == 1 then call('HDEL', P .. 'k', unpack(fingerprints)) end
  if not is_limited then return end
  local buckets = tonumber(call('HGET', M, 'buckets' .. run) or nil) or 1
  local low = level_of(buckets)
  for _, fp in ipairs(fingerprints) do call('HDEL', P .. 'z' .. run .. ':' .. bucket_of(fp, buckets, low), fp) end
end

local function end_claims(tokens)
  call('HDEL', P .. 'u', unpack(tokens))
  call('ZREM', P .. 'x', unpack(tokens))
end
