#!lua
-- withdraw: pending URLs whose commits are on disk become done, with what their index lines count. For the rebuild of a
-- crawl; needs no fence, for nobody works then. Idempotent.
-- KEYS  meta
-- ARGV  run, msgpack list of {fingerprint, queue, domain, block ('' for the head) or '*', member or token, status class,
--       bytes, fetch (ms)}: '*' is a claim or a retry, named by its token
-- returns how many were pending
--@include _fence _record _queue _block _seen _end _count
local done, fingerprints = {}, {}

-- The counter of its domain that a claimed or retrying URL leaves; nil when it is not there.
local function take_delivery(queue, token)
  if call('HDEL', P .. 'u', token) == 0 then return nil end
  if call('ZREM', P .. 'r', token) == 1 then return 'retrying' end
  call('ZREM', P .. 'x', token)
  call('ZREM', P .. 'o', token)
  settle(queue, 1, 0, -1)
  return 'claimed'
end

local function take_queued(queue, block, member)
  local key = block == '' and head_of(queue) or block_of(queue, block)
  if call('ZREM', key, member) == 0 then return nil end
  if not promote(queue) then call('ZREM', P .. 'ready', queue) end
  return 'queued'
end

for _, a in ipairs(cmsgpack.unpack(ARGV[2])) do
  local left
  if a[4] == '*' then left = take_delivery(a[2], a[5]) else left = take_queued(a[2], a[4], a[5]) end
  if left then
    call('HINCRBY', P .. 'd:' .. a[3], left, -1)
    done[#done + 1] = {domain = a[3], class = a[6], bytes = a[7], fetch_ms = a[8]}
    fingerprints[#fingerprints + 1] = a[1]
  end
end
if #done > 0 then
  count_done(done)
  forget(ARGV[1], fingerprints, true)
end
return #done
