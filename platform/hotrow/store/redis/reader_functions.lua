#!lua name=hotrow_readers_1
-- What servers may change (docs/redis.md, "ACL"): their leases, in a hash of their own. The number
-- in the name goes up with each change of this file, since users have the right to call it by name.

-- keys: the leases. args: name of one; the text that it should have, after '=', or '': it should
-- not be there; the new text, after '=', or '': it is removed. Returns 1: it was as expected and is
-- changed; 2: it is already as it is to be; 0: neither, and nothing was changed.
local function swap(keys, args)
  if #keys ~= 1 or #args ~= 3 or string.sub(args[1], 1, 6) ~= 'lease/' then
    return redis.error_reply('ERR not a lease of a reader: ' .. tostring(args[1]))
  end
  local now = redis.call('HGET', keys[1], args[1])
  now = now and '=' .. now or ''
  if now ~= args[2] then
    return now == args[3] and 2 or 0
  end
  if args[3] == '' then
    redis.call('HDEL', keys[1], args[1])
  else
    redis.call('HSET', keys[1], args[1], string.sub(args[3], 2))
  end
  return 1
end

-- Also in a full store: otherwise its readers would lose their leases.
redis.register_function{
  function_name = 'hotrow_readers_1_swap', callback = swap, flags = {'allow-oom'}
}
