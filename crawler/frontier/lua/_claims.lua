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

-- Take a claim out of its place: the record of its queue, then score, row, domain and member of its URL.
local function take_claim(token)
  local score, row, domain, member = unpack_record(call('HGET', ctx.prefix .. 'u', token))
  local r = record_of((Users.split(row)))
  call('HDEL', ctx.prefix .. 'u', token)
  call('ZREM', ctx.prefix .. 'x', token)
  leave(State.CLAIMED, r)
  return r, score, row, domain, member
end

-- An attempt failed. kind: how; is_unanswered: 1 if there was no answer.
local function count_failure(r, kind, is_unanswered)
  count(ctx.total, 'e:' .. kind, 1)
  count_in(r, 'e:' .. kind, 1)
  if is_unanswered == 1 then note_unanswered(r) else note_answered(r) end
end
