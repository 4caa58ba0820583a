#!lua flags=allow-oom
-- ack: commit one fetched URL. Needs the fence and the delivery's token. Works when out of memory.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {fingerprint, token, visit, queue, domain, next fetch (ms), delay (ms),
--       status class, bytes, fetch (ms), run, default delay (ms), items of this partition, entry,
--       list of {reason, how many} out-links refused}
-- returns {'FENCED'} | {'GONE'} | {'ALREADY_YOURS'} | {'COMMITTED', sequence, digits of the items, woken}
--@include _fence _record _queue _seen _add _end
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[4])
local fp, token, domain = a[1], a[2], a[5]
local key = fp .. ':' .. a[3]
if not is_claimed(fp, token) then
  local entry = call('HGET', P .. 'l', key)
  if entry and string.sub(entry, 1, #token + 1) == token .. ' ' then return {'ALREADY_YOURS'} end
  return {'GONE'}
end
local digits, woken = '', 0
if #a[13] > 0 then digits, woken = add_items(a[13], a[11], a[12]) end
local sequence = call('HINCRBY', M, 'sequence', 1)
call('HSET', P .. 'l', key, token .. ' ' .. sequence .. ' ' .. a[14])
end_claim(fp, domain, true)
count(domain, 's' .. a[8], 1)
count(domain, 'bytes', a[9])
for _, refused in ipairs(a[15]) do count(domain, 'refused:' .. refused[1], refused[2]) end
call('HINCRBY', P .. 'd:' .. domain, 'fetch_ms', a[10])
call('ZINCRBY', P .. 'domains', 1, domain)
settle(a[4], 1, a[6], a[7])
return {'COMMITTED', sequence, digits, woken}
