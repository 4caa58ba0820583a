-- How claims end. x: zset token -> visibility deadline (ms).

-- A token begins with the epoch it was handed out under.
local function is_of_epoch(token, epoch) return string.find(token, epoch .. '.', 1, true) == 1 end

-- Is this delivery still valid? Deliveries of earlier leases count as expired, also while they wait to be put back.
local function is_claimed(token, epoch)
  return is_of_epoch(token, epoch) and call('ZSCORE', ctx.prefix .. 'x', token) ~= false
end

-- A URL's failed attempts and one more: JSON values separated by commas. a: hash fingerprint -> attempts.
local function attempts_with(fingerprint, one)
  local earlier = call('HGET', ctx.prefix .. 'a', fingerprint)
  if not earlier or one == '' then return earlier or one end
  return earlier .. ',' .. one
end

-- Delete what is stored for URLs that are no longer pending. k: hash fingerprint -> deaths of processes that worked on it;
-- z: see _add.lua.
local function forget(run, fingerprints, is_limited)
  if call('EXISTS', ctx.prefix .. 'k', ctx.prefix .. 'a') > 0 then
    run_many(fingerprints, 'HDEL', ctx.prefix .. 'k')
    run_many(fingerprints, 'HDEL', ctx.prefix .. 'a')
  end
  if not is_limited then return end
  local seen = seen_set(run)
  for _, fp in ipairs(fingerprints) do call('HDEL', depths_of(seen, fp), fp) end
end

local function end_claims(tokens)
  run_many(tokens, 'HDEL', ctx.prefix .. 'u')
  run_many(tokens, 'ZREM', ctx.prefix .. 'x')
end
