#!lua flags=allow-oom
-- defer: keep a claimed URL without fetching it, for a reason found after it was queued. Score and member are kept for its
-- release. If an operator has released the queue's URLs for this reason, the URL is put back instead. If not, a URL of a run
-- is refused instead. A release because of rights is of a domain: queues by host that came later have it from the record
-- under the domain's name. Needs the fence and the delivery's token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {fingerprint, token, reason}
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'} | {'RELEASED'}: it was put back into its queue
if not fence(ARGV) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[FenceArgs.size + 1])
local token, reason = a[DeferArgs.token], a[DeferArgs.reason]
if not is_claimed(token, ARGV[FenceArgs.epoch]) then return {'GONE'} end
local r, score, row, _, member = take_claim(token)
local queue, user = Users.split(row)
local free, run = 'free:' .. reason, run_of(member)
local is_released = r[MORE][free] or (reason == 'rights' and r[MORE].domain and record_of(r[MORE].domain)[MORE][free])
if is_released then
  put_back(r, user, {score, member})
elseif run then
  enter(State.REFUSED, r, {seed = run, reason = reason, example = queue})
  forget(run, {a[DeferArgs.fingerprint]}, true)
else
  defer(queue, reason, {score, member})
end
settle(r, 0, -1)
close_call()
return {is_released and 'RELEASED' or 'COMMITTED'}
