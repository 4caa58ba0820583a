#!lua flags=allow-oom
-- note_sent: note in a claim that its request, which must not be repeated, is about to be sent. Needs the fence and the token.
-- Whoever gets the URL next does not send it. The note goes with a retry, and nothing else.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), token
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'}
if not fence(ARGV) then return {'FENCED'} end
local token = ARGV[FenceArgs.size + 1]
if not is_claimed(token, ARGV[FenceArgs.epoch]) then return {'GONE'} end
local score, row, domain, member = unpack_record(call('HGET', ctx.prefix .. 'u', token))
call('HSET', ctx.prefix .. 'u', token, pack_record(score, row, domain, Sent.noted(member)))
return {'COMMITTED'}
