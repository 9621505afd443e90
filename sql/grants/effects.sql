-- An application, beside what else it may: records effects in its own transactions. It can neither read nor settle
-- effects of roles outside its membership.
GRANT USAGE ON SCHEMA jobctl TO {role};
GRANT EXECUTE ON FUNCTION jobctl.record_effect TO {role};
