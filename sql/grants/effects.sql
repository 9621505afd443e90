-- For an application, in addition to its other grants: records effects in its own transactions. The
-- role can't read or settle effects that other roles recorded, unless it is a member of the
-- recording role.
GRANT USAGE ON SCHEMA jobctl TO {role};
GRANT EXECUTE ON FUNCTION jobctl.record_effect, jobctl.effect_result TO {role};
