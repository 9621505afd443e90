-- For an application, in addition to its other grants: record effects in its own transactions. The
-- role can neither read effects nor settle those of roles that it is not a member of.
GRANT USAGE ON SCHEMA jobctl TO {role};
GRANT EXECUTE ON FUNCTION jobctl.record_effect, jobctl.effect_result TO {role};
