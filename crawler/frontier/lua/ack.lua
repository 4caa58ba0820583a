#!lua flags=allow-oom
-- ack: commit one fetched URL. Needs the fence and the delivery's token. Works when out of memory.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {fingerprint, token, visit, queue, domain, next fetch (ms), delay (ms),
--       status class, bytes, fetch (ms), run, default delay (ms), items of this partition, entry,
--       list of {reason, how many} out-links refused}
-- returns {'FENCED'} | {'GONE'} | {'ALREADY_YOURS', sequence} | {'COMMITTED', sequence, digits of the items, woken}
--@include _fence _record _queue _seen _add _end
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[4])
local fp, token, domain = a[1], a[2], a[5]
local key = fp .. ':' .. a[3]
if not is_claimed(fp, token, ARGV[2]) then
  local entry = call('HGET', P .. 'l', key)
  if entry and string.sub(entry, 1, #token + 1) == token .. ' ' then
    return {'ALREADY_YOURS', tonumber(string.match(entry, '^%S+ (%d+) '))}
  end
  return {'GONE'}
end
local digits, woken = '', 0
if #a[13] > 0 then digits, woken = add_items(a[13], a[11], a[12]) end
local total = {'sequence', 1, 'done', 1, 's' .. a[8], 1, 'bytes', a[9]}
local mine = {'claimed', -1, 'fetch_ms', a[10], 's' .. a[8], 1, 'bytes', a[9]}
for _, refused in ipairs(a[15]) do
  push(total, 'refused:' .. refused[1], refused[2])
  push(mine, 'refused:' .. refused[1], refused[2])
end
local sequence = bump(M, total)[1]
call('HSET', P .. 'l', key, token .. ' ' .. string.format('%.0f', sequence) .. ' ' .. a[14])
end_claim(fp, true)
bump(P .. 'd:' .. domain, mine)
call('ZINCRBY', P .. 'domains', 1, domain)
settle(a[4], 1, a[6], a[7])
return {'COMMITTED', sequence, digits, woken}
