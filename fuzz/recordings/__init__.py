"""How recordings of the real system map to components: `mappings` of each module (`TraceMapping`).

The functions of a module are

    settings       recorded config -> settings of the model
    actions        (config, state, operation, recorded config) -> the model's actions, with arguments
    result         (config, name of the operation, outcome, recorded config) -> the outcome in recorded form
    observation    (config, observation of the model, recorded config) -> the observation in recorded form
"""
