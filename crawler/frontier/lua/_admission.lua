-- A domain's budget of hosts: URLs of hosts beyond it are deferred. Store n: domain -> number of its admitted hosts, and
-- 'domain label' for each of them; the label of 'www.example.com' is 'www', that of the domain itself is '@'.

-- The host of an item of add: from its origin, or from the letter of its member.
local function host_in(queue, member, origin)
  if origin ~= '' then return (string.gsub(string.match(origin, '//(.*)$'), ':%d+$', '')) end
  local letter = string.sub(member, 1, 1)
  return (letter == '#' or letter == '$') and 'www.' .. queue or queue
end

local takes_host
do
  local function label_of(domain, host)
    if host == domain then return '@' end
    local behind = '.' .. domain
    return string.sub(host, -#behind) == behind and string.sub(host, 1, -#behind - 1) or host
  end

  -- Is this host admitted, before or by this call? Hosts of seeds always are.
  function takes_host(domain, host, hosts_max, is_given)
    local name = domain .. ' ' .. label_of(domain, host)
    if not ctx.taken_labels[name] and not compact_get('n', name) then
      local n = tonumber(compact_get('n', domain) or nil) or 0
      if n >= hosts_max and not is_given then return false end
      compact_put('n', name, '')
      compact_put('n', domain, n + 1)
    end
    ctx.taken_labels[name] = true
    return true
  end
end
