-- The ends of a claim. c: hash fingerprint -> token of its delivery; x: zset fingerprint -> visibility deadline (ms).

-- Is this delivery still the one that counts? A token begins with the epoch it was handed out under: those of earlier
-- leases count as expired, also while they wait to be put back.
local function is_claimed(fingerprint, token, epoch)
  return string.sub(token, 1, #epoch + 1) == epoch .. '.' and call('HGET', P .. 'c', fingerprint) == token
end

-- Take the claim away; the URL is pending no more when done is true.
local function end_claim(fingerprint, done)
  call('HDEL', P .. 'c', fingerprint)
  call('ZREM', P .. 'x', fingerprint)
  if done then call('HDEL', P .. 'u', fingerprint) end
end
