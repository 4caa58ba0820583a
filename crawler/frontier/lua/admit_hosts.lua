#!lua flags=allow-oom
-- admit_hosts: move URLs that a domain's budget of hosts deferred into their queue, if it admits their hosts now. Without a
-- fence. Idempotent.
-- KEYS  meta
-- ARGV  AdmitArgs; at most 128 URLs
-- returns {woken queues, number of URLs}
local queue, domain, hosts_max = ARGV[AdmitArgs.queue], ARGV[AdmitArgs.domain], tonumber(ARGV[AdmitArgs.hosts_max])
local entries = {}
local row = row_of(queue, HOSTS)

-- A block may have become the head since the caller read it.
local function take_out(key, member)
  local score = call('ZSCORE', key, member)
  if not score or call('ZREM', key, member) == 0 then return false end
  push(entries, text_of(tonumber(score)), member)
  add_to(row, N, -1)
  return true
end

for _, one in ipairs(cmsgpack.unpack(ARGV[AdmitArgs.urls])) do
  local head, block, member = head_of(row.queue), one[HostUrl.block], one[HostUrl.member]
  local key = block ~= '' and block_of(row.queue, block) or head
  if takes_host(domain, one[HostUrl.host], hosts_max, false) and not take_out(key, member) then take_out(head, member) end
end
local n = #entries / 2
if n == 0 then return {0, 0} end
promote(row)
note_released(queue, HOSTS, n)
put_pending(record_of(queue), '', entries, tonumber(ARGV[AdmitArgs.default_delay_ms]))
return {close_call(ARGV[AdmitArgs.hints], ARGV[AdmitArgs.session]), n}
