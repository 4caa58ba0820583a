#!lua flags=allow-oom
-- extend_claims: move the deadline of claims whose fetch is still running. Needs the fence and each token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), visibility timeout (ms), then the token of each claim
-- returns {'FENCED'} | {'COMMITTED', number of extended claims}
if not fence(ARGV) then return {'FENCED'} end
local extended, deadline = 0, tonumber(ARGV[FenceArgs.now_ms]) + tonumber(ARGV[FenceArgs.size + 1])
for i = FenceArgs.size + 2, #ARGV do
  if is_claimed(ARGV[i], ARGV[FenceArgs.epoch]) then
    call('ZADD', ctx.prefix .. 'x', 'XX', 'GT', deadline, ARGV[i])
    extended = extended + 1
  end
end
return {'COMMITTED', extended}
