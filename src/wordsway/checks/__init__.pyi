# The names, module by module.
# isort: skip_file

# Numbers, names and positions
from .arguments import (
    MAX_TRIALS as MAX_TRIALS,
    as_int as as_int,
    check_at_most as check_at_most,
    check_choice as check_choice,
    check_index as check_index,
    check_position as check_position,
    check_positive as check_positive,
    check_radius as check_radius,
    check_seed as check_seed,
    check_several as check_several,
    check_size as check_size,
    check_trials as check_trials,
    check_word as check_word,
    check_words as check_words,
    describe as describe,
    is_sequence as is_sequence,
)

# Arrays and contexts
from .arrays import (
    CONTEXT_RULE as CONTEXT_RULE,
    Values as Values,
    all_finite as all_finite,
    as_array as as_array,
    as_context as as_context,
    as_contexts as as_contexts,
    as_tensor as as_tensor,
    check_dtype as check_dtype,
    check_finite as check_finite,
    check_readable as check_readable,
    check_rows as check_rows,
    dtype_error as dtype_error,
    float_tensor as float_tensor,
    like_parameters as like_parameters,
    row_name as row_name,
)
