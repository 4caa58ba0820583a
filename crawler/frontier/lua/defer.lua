#!lua flags=allow-oom
-- defer: a claimed URL is kept and not fetched, for a reason found since it was queued. What is known of it stays as it is, for
-- its release. What an operator has released for that reason is not deferred again, but put back. Needs the fence and the
-- delivery's token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {token, reason}
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'} | {'RELEASED'}: it is in its queue again
if not fence(ARGV) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[FenceArgs.size + 1])
local token, reason = a[DeferArgs.token], a[DeferArgs.reason]
if not is_claimed(token, ARGV[FenceArgs.epoch]) then return {'GONE'} end
local score, queue, _, member = unpack_record(call('HGET', P .. 'u', token))
end_claims({token})
local r = record_of(queue)
local is_released = r[MORE]['free:' .. reason]
if is_released then put_back(r, {score, member}) else defer(queue, reason, {score, member}) end
settle(r, 1, 0, -1)
close_queues()
write_totals()
return {is_released and 'RELEASED' or 'COMMITTED'}
