-- The ends of a claim. c: hash fingerprint -> token of its delivery; x: zset fingerprint -> visibility deadline (ms).

-- Is this delivery still the one that counts?
local function is_claimed(fingerprint, token)
  return call('HGET', P .. 'c', fingerprint) == token
end

-- Take the claim away; the URL is pending no more when done is true.
local function end_claim(fingerprint, domain, done)
  call('HDEL', P .. 'c', fingerprint)
  call('ZREM', P .. 'x', fingerprint)
  call('HINCRBY', P .. 'd:' .. domain, 'claimed', -1)
  if done then
    call('HDEL', P .. 'u', fingerprint)
    call('HINCRBY', M, 'done', 1)
  end
end

-- One more of something, for the domain and for the partition's total.
local function count(domain, field, n)
  call('HINCRBY', P .. 'd:' .. domain, field, n)
  call('HINCRBY', M, field, n)
end
