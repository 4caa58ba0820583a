#!lua flags=allow-oom
-- defer: keep a claimed URL without fetching it, for a reason found after it was queued. Score and member are kept for its
-- release. If an operator has released the queue's URLs for this reason, the URL is put back instead. If not, a URL of a run
-- is refused instead. Needs the fence and the delivery's token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {fingerprint, token, reason}
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'} | {'RELEASED'}: it was put back into its queue
if not fence(ARGV) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[FenceArgs.size + 1])
local token, reason = a[DeferArgs.token], a[DeferArgs.reason]
if not is_claimed(token, ARGV[FenceArgs.epoch]) then return {'GONE'} end
local r, score, row, _, member = take_claim(token)
local queue, user = Users.split(row)
local is_released, run = r[MORE]['free:' .. reason], run_of(member)
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
