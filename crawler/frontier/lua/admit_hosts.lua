#!lua flags=allow-oom
-- admit_hosts: move URLs that a domain's budget of hosts deferred into their queue, if it admits their hosts now. Without a
-- fence. Idempotent.
-- KEYS  meta
-- ARGV  AdmitArgs; at most 128 URLs
-- returns {woken queues, number of URLs}
local queue, domain, hosts_max = ARGV[AdmitArgs.queue], ARGV[AdmitArgs.domain], tonumber(ARGV[AdmitArgs.hosts_max])
local entries = {}
local row = row_of(queue, HOSTS)

local function take_out(block, member)
  local head = head_of(row.queue)
  local score = call('ZSCORE', head, member) or (block ~= '' and call('ZSCORE', block_of(row.queue, block), member))
  if not score or not remove_url(row.queue, block, member) then return end
  push(entries, text_of(tonumber(score)), member)
  add_to(row, N, -1)
end

for _, one in ipairs(cmsgpack.unpack(ARGV[AdmitArgs.urls])) do
  if takes_host(domain, one[HostUrl.host], hosts_max, false) then take_out(one[HostUrl.block], one[HostUrl.member]) end
end
local n = #entries / 2
if n == 0 then return {0, 0} end
promote(row)
note_released(queue, HOSTS, n)
put_pending(record_of(queue), '', entries, tonumber(ARGV[AdmitArgs.default_delay_ms]))
return {close_call(ARGV[AdmitArgs.hints], ARGV[AdmitArgs.session]), n}
