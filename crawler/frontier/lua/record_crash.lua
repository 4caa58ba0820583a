#!lua flags=allow-oom
-- record_crash: record that a session's process died while it worked on these URLs. Without a fence: any session may report
-- it, and one session's death counts once. k: hash fingerprint -> 'deaths session'; claim returns it to the owner.
-- KEYS  meta
-- ARGV  CrashArgs: the session that died, how many deaths that counts as; then fingerprints
-- returns {'COMMITTED', number of URLs for which it was recorded}
local noted = 0
for i = CrashArgs.size + 1, #ARGV do
  local deaths, session = string.match(call('HGET', ctx.prefix .. 'k', ARGV[i]) or '', '^(%d+) (.*)$')
  if session ~= ARGV[CrashArgs.session] then
    call('HSET', ctx.prefix .. 'k', ARGV[i], ((tonumber(deaths) or 0) + tonumber(ARGV[CrashArgs.deaths])) .. ' ' .. ARGV[CrashArgs.session])
    noted = noted + 1
  end
end
return {'COMMITTED', noted}
